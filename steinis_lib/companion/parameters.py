"""Validated parameters of experiments: two profiles, and errors that say how to mend them."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping
from types import ModuleType
from typing import Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

Profile = Literal["quick", "paper"]


def _rises(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("must rise strictly")
    return values


Rising = AfterValidator(_rises)
"""For ``Annotated[tuple[int, ...], Rising]``: refuses numbers that do not rise strictly."""


class ParameterError(ValueError):
    """A parameter is unknown, of the wrong type, or out of range."""


class Parameters(BaseModel):
    """Base of each experiment's parameters; the defaults are the `paper` profile's values."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    QUICK: ClassVar[dict[str, Any]] = {}
    """What the `quick` profile changes."""

    profile: Profile = Field("paper", description="quick: seconds; paper: the paper's sizes")
    seed: int = Field(1, ge=0, lt=2**63, description="the seed that all random streams come from")

    @classmethod
    def of_profile(cls, profile: str, overrides: Mapping[str, Any] | None = None) -> Self:
        """Return a profile's parameters with some replaced.

        Raises
        ------
        ParameterError
            Naming every unknown name, wrong type and value out of range, and what was expected.
        """
        if profile not in ("quick", "paper"):
            raise ParameterError(f"profile: expected 'quick' or 'paper', got {profile!r}")
        overrides = dict(overrides or {})
        if "profile" in overrides:
            raise ParameterError("profile: give it as the profile, not among the parameters")
        problems = [_unknown(name, cls) for name in overrides if name not in cls.model_fields]
        known = {name: value for name, value in overrides.items() if name in cls.model_fields}
        base = cls.QUICK if profile == "quick" else {}
        problems += [
            f"{name}: expected a number, got {value!r}{_describe(name, cls)}"
            for name, value in known.items()
            if isinstance(value, bool) and cls.model_fields[name].annotation is not bool
        ]
        try:
            result = cls.model_validate(base | known | {"profile": profile})
        except ValidationError as error:
            problems += [_invalid(e, cls) for e in error.errors()]
        if problems:
            raise ParameterError("\n".join(problems))
        return result

    def digest(self) -> str:
        """Return a short fingerprint of all values."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:12]


def notebook_parameters(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a notebook's `parameters` cell, and papermill after it, have set.

    Called with ``globals()`` before the notebook defines anything else, so that a name papermill
    injected by mistake is seen, and refused by `Parameters.of_profile`. None means: the
    profile's value.
    """
    ours = {"In", "Out", "exit", "quit", "open", "get_ipython"}
    return {
        name: value
        for name, value in namespace.items()
        if not name.startswith("_")
        and name not in ours
        and value is not None
        and not callable(value)
        and not isinstance(value, ModuleType)
    }


def _describe(name: str, cls: type[Parameters]) -> str:
    text = cls.model_fields[name].description
    return f" ({text})" if text else ""


def _unknown(name: str, cls: type[Parameters]) -> str:
    close = difflib.get_close_matches(name, cls.model_fields, n=1)
    hint = f"did you mean {close[0]}?" if close else "known: " + ", ".join(cls.model_fields)
    return f"{name}: no such parameter; {hint}"


def _invalid(error: Any, cls: type[Parameters]) -> str:
    name = ".".join(str(part) for part in error["loc"])
    if not name:
        return str(error["msg"]).removeprefix("Value error, ")
    message = error["msg"].removeprefix("Value error, ")
    return f"{name}: {message}, got {error['input']!r}{_describe(str(error['loc'][0]), cls)}"
