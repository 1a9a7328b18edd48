"""What people look at: results as tables and files, figures in one style."""

from ._figures import PALETTE as PALETTE
from ._figures import new_figure as new_figure
from ._figures import save_figure as save_figure
from ._result import METRICS as METRICS
from ._result import Result as Result
from ._result import Row as Row
from ._result import read_result as read_result
from ._result import write_result as write_result
from ._table import result_table as result_table
