"use strict";
(async () => {
  const $ = (id) => document.getElementById(id);
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"];
  const [BLUE, RED, GREEN] = COLOURS;
  const BLACK = "#1a1a1a";
  // Light to dark with steadily falling brightness, so that it reads without colour too.
  const ERRORS = [[0, "#fde8b0"], [0.35, "#f3a95c"], [0.7, "#c4561f"], [1, "#5c1a00"]];
  const VALUES = [[0, "#0b2c4a"], [0.5, "#3f8fc4"], [1, "#e4f1fa"]];

  async function unpack(id) {
    const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  const narrow = () => window.matchMedia("(max-width: 40rem)").matches;
  // Plotly reads tags in texts; names are not meant to have any.
  const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const short = (v) => (v === null || v === undefined ? "–" : String(Number(v.toPrecision(4))));
  const timeText = (t, dates) => (dates ? new Date(t).toISOString().slice(0, 16).replace("T", " ") : String(t));
  const timeAxis = (dates) => (dates ? { type: "date" } : { type: "linear", title: { text: "time" } });

  function draw(id, traces, layout) {
    const box = $(id);
    const base = {
      font: { family: "system-ui, sans-serif", size: narrow() ? 12 : 13, color: BLACK },
      margin: { l: narrow() ? 48 : 60, r: 12, t: 8, b: 48 },
      paper_bgcolor: "#fff", plot_bgcolor: "#fff", hovermode: "closest",
      // On a phone a finger on a chart has to scroll the page.
      dragmode: narrow() ? false : "zoom",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    };
    const config = { responsive: true, displayModeBar: false };
    const full = { ...base, ...layout };
    for (const axis of ["xaxis", "yaxis"]) {
      full[axis] = { gridcolor: "#e6e6e6", zeroline: false, automargin: true, ...full[axis] };
    }
    return Plotly.react(box, traces, full, config);
  }

  function fill(select, names) {
    select.replaceChildren(...names.map(([value, text]) => new Option(text, value)));
  }

  // Fan charts and the choice of a node

  function fanTraces(fans, n) {
    const traces = [];
    const band = ["rgba(0,114,178,.16)", "rgba(0,114,178,.26)", "rgba(0,114,178,.36)"];
    [...fans.levels.keys()].reverse().forEach((level, depth) => {
      const shared = { x: fans.times, mode: "lines", line: { width: 0 }, hoverinfo: "skip", legendgroup: "level" + level };
      traces.push({ ...shared, y: fans.lower[level][n], showlegend: false });
      traces.push({ ...shared, y: fans.upper[level][n], fill: "tonexty", fillcolor: band[Math.min(depth, 2)],
        name: fans.levels[level] + " % interval" });
    });
    Object.entries(fans.baselines).forEach(([name, values], i) => traces.push({
      x: fans.times, y: values[n], mode: "lines", name: plain(name), visible: "legendonly",
      line: { color: [GREEN, COLOURS[3], COLOURS[5]][i % 3], width: 1.5, dash: "dot" } }));
    const outer = fans.levels.length - 1;
    const hover = fans.times.map((t, i) => {
      const parts = [timeText(t, fans.dates), "forecast " + short(fans.mean[n][i])];
      if (outer >= 0) parts.push(fans.levels[outer] + " %: " + short(fans.lower[outer][n][i]) + " to " + short(fans.upper[outer][n][i]));
      if (fans.origins) parts.push("made at " + timeText(fans.origins[i], fans.dates));
      return parts.join("<br>");
    });
    traces.push({ x: fans.times, y: fans.mean[n], mode: "lines", name: "forecast", line: { color: BLUE, width: 2 },
      text: hover, hoverinfo: "text" });
    const dots = (x, y, name, marker) => ({ x, y, mode: "markers", name, marker, hovertemplate: "%{x}<br>%{y}<extra>" + name + "</extra>" });
    const given = { color: BLACK, size: 5 };
    if (fans.past) traces.push(dots(fans.past_times, fans.past[n], "before the forecast", given));
    if (fans.y) {
      const pick = (wanted) => fans.y[n].map((v, i) => ((fans.seen ? fans.seen[n][i] : 0) === wanted ? v : null));
      const held = { color: "#fff", size: 7, symbol: "circle", line: { color: RED, width: 1.6 } };
      traces.push(dots(fans.times, pick(0), fans.seen ? "reading, held back" : "reading", held));
      if (fans.seen) traces.push(dots(fans.times, pick(1), "reading, seen afterwards", { ...given, symbol: "x" }));
    }
    return traces;
  }

  function startFans(data) {
    const { fans } = data;
    const select = $("node"), order = $("order");
    const label = (i) => fans.nodes[i] + (data.error[i] === null ? "" : "  (error " + short(data.error[i]) + ")");
    const list = () => {
      const ids = [...fans.nodes.keys()];
      if (order.value === "error") ids.sort((a, b) => (data.error[b] ?? -1) - (data.error[a] ?? -1));
      fill(select, ids.map((i) => [i, label(i)]));
    };
    const show = () => {
      const n = Number(select.value);
      $("fan-name").textContent = fans.nodes[n];
      draw("fan", fanTraces(fans, n), {
        xaxis: timeAxis(fans.dates), yaxis: { title: { text: plain(data.quantity) } },
        // What the reader zoomed to or switched on stays when the node changes.
        uirevision: "fan" });
      $("fan").setAttribute("aria-label", "Forecast and readings of " + fans.nodes[n]);
      document.dispatchEvent(new CustomEvent("node", { detail: n }));
    };
    const choose = (n) => { select.value = String(n); show(); };
    const step = (by) => {
      select.selectedIndex = (select.selectedIndex + by + select.options.length) % select.options.length;
      show();
    };
    list();
    select.addEventListener("change", show);
    order.addEventListener("change", () => {
      const kept = select.value;
      list();
      if (order.value === "error") select.selectedIndex = 0; else select.value = kept;
      show();
    });
    $("previous").addEventListener("click", () => step(-1));
    $("next").addEventListener("click", () => step(1));
    show();
    return choose;
  }

  // The graph or map

  function startMap(data, choose) {
    const { network, fans } = data;
    const lines = { x: [], y: [] };
    network.senders.forEach((s, e) => {
      const r = network.receivers[e];
      lines.x.push(network.x[s], network.x[r], null);
      lines.y.push(network.y[s], network.y[r], null);
    });
    const slider = $("time"), colour = $("colour"), play = $("play");
    const series = {};
    if (fans) {
      series.mean = fans.mean;
      if (fans.y) {
        series.y = fans.y;
        series.error = fans.y.map((row, n) => row.map((v, i) => (v === null || fans.mean[n][i] === null ? null : Math.abs(v - fans.mean[n][i]))));
      }
    }
    const range = (rows) => {
      const all = rows.flat().filter((v) => v !== null).sort((a, b) => a - b);
      // One wild value should not take the whole scale.
      return all.length ? [all[0], all[Math.floor(0.98 * (all.length - 1))]] : [0, 1];
    };
    const ranges = { whole: range([data.error]), ...Object.fromEntries(Object.entries(series).map(([k, v]) => [k, range(v)])) };
    ranges.whole[0] = 0;
    if (ranges.error) ranges.error[0] = 0;
    const named = (text) => (network.geographic && !narrow() ? { title: { text } } : {});
    const bare = { showgrid: false, showticklabels: network.geographic, ticks: "", nticks: 5 };
    let chosen = 0, timer = null;
    if (slider) slider.max = fans.times.length - 1;

    const show = () => {
      const kind = colour ? colour.value : "whole", moving = kind !== "whole";
      if (slider) {
        slider.disabled = play.disabled = !moving;
        const text = moving ? timeText(fans.times[slider.value], fans.dates) : "all times";
        $("time-text").textContent = text;
        slider.setAttribute("aria-valuetext", text);
      }
      const values = moving ? series[kind].map((row) => row[slider.value]) : data.error;
      const title = colour ? colour.selectedOptions[0].textContent : "";
      const known = [], unknown = [];
      values.forEach((v, i) => (v === null ? unknown : known).push(i));
      const at = (ids) => ({ x: ids.map((i) => network.x[i]), y: ids.map((i) => network.y[i]), customdata: ids,
        text: ids.map((i) => plain(network.nodes[i]) + "<br>" + short(values[i])), hoverinfo: "text", mode: "markers", type: "scatter" });
      const size = network.nodes.length > 150 ? 9 : 13;
      draw("map", [
        { ...lines, mode: "lines", type: "scatter", line: { color: "#b5b5b5", width: 1 }, hoverinfo: "skip" },
        { ...at(unknown), marker: { size: size - 2, color: "#fff", line: { color: "#767676", width: 1.5 } } },
        { ...at(known), marker: { size, color: known.map((i) => values[i]), cmin: ranges[kind][0], cmax: ranges[kind][1],
          colorscale: kind === "whole" || kind === "error" ? ERRORS : VALUES, line: { color: "#444", width: 0.7 }, showscale: known.length > 0,
          colorbar: { title: { text: plain(title), side: narrow() ? "top" : "right" }, thickness: 12, ...(narrow()
            ? { orientation: "h", y: -0.16, yanchor: "top", len: 0.9 } : {}) } } },
        ...(choose ? [{ x: [network.x[chosen]], y: [network.y[chosen]], mode: "markers", type: "scatter", hoverinfo: "skip",
          marker: { size: size + 9, color: "rgba(0,0,0,0)", line: { color: BLUE, width: 3 } } }] : []),
      ], {
        xaxis: { ...bare, ...named("longitude") },
        yaxis: { ...bare, ...(network.placed ? { scaleanchor: "x", scaleratio: network.ratio } : {}),
          ...named("latitude") },
        showlegend: false, uirevision: "map" });
    };
    const stop = () => { clearInterval(timer); timer = null; play.textContent = "Play"; };
    show();
    if (colour) colour.addEventListener("change", () => { if (timer) stop(); show(); });
    if (slider) {
      slider.addEventListener("input", show);
      play.addEventListener("click", () => {
        if (timer) { stop(); return; }
        play.textContent = "Pause";
        timer = setInterval(() => { slider.value = (Number(slider.value) + 1) % fans.times.length; show(); }, 300);
      });
    }
    document.addEventListener("node", (event) => { chosen = event.detail; show(); });
    $("map").on("plotly_click", (event) => { if (choose && event.points[0].customdata !== undefined) choose(event.points[0].customdata); });
  }

  // The rest

  function drawHorizons({ models, metric, names, values }) {
    draw("horizons", models.map((m, i) => ({ x: names, y: values[i], name: plain(m), mode: "lines+markers",
      line: { color: i ? COLOURS[1 + ((i - 1) % 5)] : BLUE, width: i ? 1.5 : 3, dash: i ? "dot" : "solid" },
      marker: { size: i ? 6 : 8, symbol: i } })),
    { xaxis: { type: "category", title: { text: "how far ahead" } }, yaxis: { title: { text: plain(metric) }, rangemode: "tozero" } });
  }

  function drawCalibration({ levels, measured }) {
    draw("calibration-chart", [
      { x: [0, 100], y: [0, 100], mode: "lines", name: "as it should be", line: { color: "#767676", dash: "dash", width: 1.5 }, hoverinfo: "skip" },
      { x: levels, y: measured, mode: "lines+markers", name: "measured", line: { color: BLUE, width: 2 }, marker: { size: 9 },
        hovertemplate: "said %{x} %, held %{y:.1f} %<extra></extra>" },
    ], { xaxis: { range: [0, 102], title: { text: "said to hold (%)" } }, yaxis: { range: [0, 102], title: { text: "held (%)" } } });
  }

  function drawTraining({ steps, curves, chosen }) {
    const shapes = chosen === null ? [] : [{ type: "line", x0: chosen, x1: chosen, y0: 0, y1: 1, yref: "paper", line: { color: "#767676", dash: "dot" } }];
    const level = (values) => {
      const known = values.filter((v) => v !== null).map(Math.abs).sort((a, b) => a - b);
      return known.length ? known[Math.floor(known.length / 2)] : 0;
    };
    const names = Object.keys(curves), first = level(curves[names[0]] ?? []);
    // A curve in other units than the first, such as an error beside a log density, gets the axis on the right.
    const apart = names.filter((name) => Math.max(level(curves[name]), first) > 3 * Math.min(level(curves[name]), first));
    draw("training-chart", names.map((name, i) => ({ x: steps, y: curves[name], name: plain(name) + (apart.includes(name) ? " (right)" : ""),
      mode: "lines", connectgaps: true, yaxis: apart.includes(name) ? "y2" : "y",
      line: { color: COLOURS[i % COLOURS.length], width: 2, dash: ["solid", "dash", "dot", "dashdot"][i % 4] } })),
    { xaxis: { title: { text: "training step" } }, yaxis: { title: { text: plain(names[0] ?? "") } }, shapes,
      ...(apart.length ? { margin: { l: narrow() ? 48 : 60, r: 60, t: 8, b: 48 },
        yaxis2: { overlaying: "y", side: "right", showgrid: false, zeroline: false, title: { text: plain(apart.join(", ")) } } } : {}) });
  }

  function startLatent(latent) {
    const select = $("latent-node");
    fill(select, latent.nodes.map((name, i) => [i, name]));
    const show = () => {
      const states = latent.states[Number(select.value)];
      const traces = states.map((row, f) => {
        const x = [], y = [];
        latent.times.forEach((t, i) => {
          // A time that stands twice is a jump: the line ends and begins anew.
          if (i && t === latent.times[i - 1]) { x.push(t); y.push(null); }
          x.push(t);
          y.push(row[i]);
        });
        return { x, y, mode: "lines", name: "z" + (latent.features[f] + 1),
          line: { color: COLOURS[f % COLOURS.length], width: 2, dash: ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"][f % 6] } };
      });
      const shapes = latent.observed.map((t) => ({ type: "line", x0: t, x1: t, y0: 0, y1: 1, yref: "paper", layer: "below",
        line: { color: "#b5b5b5", width: 1 } }));
      draw("latent-chart", traces, { xaxis: timeAxis(latent.dates), yaxis: { title: { text: "state z(t)" } }, shapes });
    };
    select.addEventListener("change", show);
    show();
  }

  function drawSolver({ gaps, steps, unit }) {
    draw("solver-chart", [{ x: gaps, y: steps, mode: "markers", type: "scatter", marker: { color: BLUE, size: 6, opacity: 0.6 },
      hovertemplate: "%{x} " + plain(unit) + ": %{y} steps<extra></extra>" }],
    { xaxis: { title: { text: "time between observations" + (unit ? " (" + plain(unit) + ")" : "") } },
      yaxis: { title: { text: "solver steps" }, rangemode: "tozero" }, showlegend: false });
  }

  function startTables() {
    for (const button of document.querySelectorAll("th button")) {
      button.addEventListener("click", () => {
        const th = button.parentElement, table = th.closest("table"), body = table.tBodies[0];
        const column = th.cellIndex, up = th.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
        const rows = [...body.rows].sort((a, b) => {
          const [p, q] = [key(a), key(b)];
          const order = isNaN(p) || isNaN(q) ? p.localeCompare(q) : p - q;
          return up ? order : -order;
        });
        body.replaceChildren(...rows);
      });
    }
  }

  try {
    startTables();
    const data = JSON.parse(await unpack("data"));
    if (document.querySelector(".chart")) {
      const script = document.createElement("script");
      script.textContent = await unpack("plotly");
      document.head.append(script);
    }
    const choose = data.fans ? startFans(data) : null;
    if (data.network) startMap(data, choose);
    if (data.horizons) drawHorizons(data.horizons);
    if (data.calibration) drawCalibration(data.calibration);
    if (data.training) drawTraining(data.training);
    if (data.latent) startLatent(data.latent);
    if (data.solver) drawSolver(data.solver);
    document.body.dataset.ready = "yes";
  } catch (error) {
    $("problem").textContent = "The charts could not be drawn: " + error + ". A browser of 2023 or newer is needed.";
    $("problem").hidden = false;
    document.body.dataset.ready = "no";
    throw error;
  }
})();
