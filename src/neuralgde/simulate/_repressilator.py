"""The repressilator: three genes in a ring, each repressing the next (Elowitz and Leibler 2000)."""

from ._network import ReactionNetwork
from ._reaction import Hill, MassAction, Reaction

# mRNA, its protein, and the protein that represses it: LacI, TetR, cI.
_GENES = (("X", "PX", "PZ"), ("Y", "PY", "PX"), ("Z", "PZ", "PY"))


def repressilator() -> ReactionNetwork:
    """Proteins PX, PY, PZ (LacI, TetR, cI) and their mRNAs X, Y, Z, of which Y starts at 20; time in minutes.

    Constants of the paper: promoters give 0.5 transcripts a second, 5e-4 when repressed, half of the difference at 40
    repressors with Hill coefficient 2; 20 proteins a transcript; half lives of 2 and 10 minutes.
    """
    decay = [Reaction(f"Reaction{i + 1}", {m: 1}, {}, MassAction("kd_mRNA")) for i, (m, _, _) in enumerate(_GENES)]
    translation = [Reaction(f"Reaction{i + 4}", {}, {p: 1}, f"k_tl * {m}") for i, (m, p, _) in enumerate(_GENES)]
    protein_decay = [
        Reaction(f"Reaction{i + 7}", {p: 1}, {}, MassAction("kd_prot")) for i, (_, p, _) in enumerate(_GENES)
    ]
    transcription = [
        Reaction(f"Reaction{i + 10}", {}, {m: 1}, Hill(r, "a_tr", "KM", "n", base="a0_tr", represses=True))
        for i, (m, _, r) in enumerate(_GENES)
    ]
    return ReactionNetwork(
        {"PX": 0, "PY": 0, "PZ": 0, "X": 0, "Y": 20, "Z": 0},
        [*decay, *translation, *protein_decay, *transcription],
        parameters={
            "eff": 20, "n": 2, "KM": 40, "tau_mRNA": 2, "tau_prot": 10, "ps_a": 0.5, "ps_0": 0.0005, "t_ave": 0,
            "kd_mRNA": 0, "kd_prot": 0, "k_tl": 0, "a_tr": 0, "a0_tr": 0,
        },
        rules={
            "t_ave": "tau_mRNA / ln(2)",
            "kd_mRNA": "ln(2) / tau_mRNA",
            "kd_prot": "ln(2) / tau_prot",
            "k_tl": "eff / t_ave",
            "a_tr": "60 * (ps_a - ps_0)",
            "a0_tr": "60 * ps_0",
        },
    )  # fmt: skip
