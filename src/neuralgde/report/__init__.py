"""What people look at: results as tables and files, figures in one style, a page."""

from ._figures import PALETTE as PALETTE
from ._figures import new_figure as new_figure
from ._figures import save_figure as save_figure
from ._folder import folder_page as folder_page
from ._folder import report_folder as report_folder
from ._page import page_html as page_html
from ._page import write_page as write_page
from ._page_data import Calibration as Calibration
from ._page_data import Fans as Fans
from ._page_data import LatentFlow as LatentFlow
from ._page_data import Network as Network
from ._page_data import Page as Page
from ._page_data import Scores as Scores
from ._page_data import SolverStats as SolverStats
from ._page_data import Training as Training
from ._page_files import has_page_data as has_page_data
from ._page_files import read_page_data as read_page_data
from ._page_files import write_page_data as write_page_data
from ._result import METRICS as METRICS
from ._result import Result as Result
from ._result import Row as Row
from ._result import read_result as read_result
from ._result import write_result as write_result
from ._table import result_table as result_table
from ._verdict import Verdict as Verdict
from ._verdict import judge as judge
