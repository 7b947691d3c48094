"""A case: a model in both frameworks, and everything needed to record it stage by stage."""

from twinalign.case.definition import Case as Case
from twinalign.case.definition import Steps as Steps
