"""The reproduction of the paper: its experiments, the engine that runs them, claims, and book.

Nothing of the method is here; the method does not import anything from here. This package needs
the extra ``companion``.

* `sections`: one folder for each section of the book;
* `runner`: the engine; `results` and `obtain`: stored results;
* `claims` and `verification`: verdicts, and checks of the stored results;
* `problems`: the paper's own test problems;
* `settings`, `methods`, `method_readings` and `counting`: what the experiments share;
* `search`, `tuning` and `tuning_records`: how settings are searched, and what was found;
* `vae`: the models of section 5.4, and their images;
* `notebooks`, `page`, `figures`, `method_labels` and `intervals`: what the pages are made of;
* `cli`, `train_command` and `terminal`: the command ``steinis``.
"""


def main() -> None:
    """Run the command ``steinis``, or say what has to be installed for it."""
    try:
        from steinis_lib.companion.cli import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("steinis_lib"):
            raise
        raise SystemExit(
            f"error: the command `steinis` needs the package {error.name!r}, which is not "
            "installed: pip install 'steinis-companion[companion]'"
        ) from error
    app()
