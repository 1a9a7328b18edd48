"""Tables in, forecasts out: the Forecaster, and what it shares with the experiments."""

from ._backtest import BACKTEST_METRICS as BACKTEST_METRICS
from ._backtest import Backtest as Backtest
from ._backtest import backtest_table as backtest_table
from ._config import MODELS as MODELS
from ._config import ForecastConfig as ForecastConfig
from ._forecaster import Forecaster as Forecaster
from ._forecaster import forecast_columns as forecast_columns
from ._forecaster import stamp_name as stamp_name
from ._fresh import FreshWindows as FreshWindows
from ._losses import FORECAST_BATCH as FORECAST_BATCH
from ._losses import SensorError as SensorError
from ._losses import WindowLoss as WindowLoss
from ._losses import forecast_windows as forecast_windows
from ._page import backtest_page as backtest_page
from ._page import fit_page as fit_page
from ._predict import Forecasts as Forecasts
from ._ridge import Ridge as Ridge
from ._ridge import expected as expected
from ._ridge import filled as filled
from ._ridge import fit_ridge as fit_ridge
from ._ridge import last_value as last_value
from ._view import View as View
