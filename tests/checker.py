"""The type checker of the tests: beartype, which lets 1 stand for 1.0 as Python does."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
