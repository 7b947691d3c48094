"""The verdict: does the reproduction equal the reference up to rounding, and on what evidence.

`docs/verdict.md` derives the method. Callers use the functions of `twinalign.verdict.compare`.
"""

from twinalign.verdict.allowances import KNOWN_ALLOWANCES as KNOWN_ALLOWANCES
from twinalign.verdict.allowances import Allowance as Allowance
from twinalign.verdict.classic import classic_verdict as classic_verdict
from twinalign.verdict.compare import compare_arrays as compare_arrays
from twinalign.verdict.compare import compare_files as compare_files
from twinalign.verdict.results import Classic as Classic
from twinalign.verdict.results import Comparison as Comparison
from twinalign.verdict.results import Described as Described
from twinalign.verdict.results import TensorVerdict as TensorVerdict
