from steinis_lib.companion.method_labels import LABELS, at_an_end, in_words
from steinis_lib.companion.settings import METHODS, Setting


def test_every_method_has_a_name_and_a_look():
    assert tuple(LABELS) == METHODS
    assert len({name for name, _, _ in LABELS.values()}) == len(METHODS)
    assert len({(colour, str(line)) for _, colour, line in LABELS.values()}) == len(METHODS)


def test_settings_in_words():
    assert in_words("steinis", Setting(0.1, 0.0, 1.0)) == "α 0.1, β 0, bandwidth × 1"
    assert in_words("hais-1l", Setting(0.12345, refresh=0.4)) == "ε 0.123, refresh 0.4"
    options = [Setting(a, b, 1.0) for a in (0.1, 1.0, 10.0) for b in (0.0, 0.3)]
    assert at_an_end("steinis", Setting(0.1, 0.3, 1.0), options) == "α"  # two β are no range
    assert at_an_end("steinis", Setting(1.0, 0.3, 1.0), options) == "–"
    three = [Setting(a, b) for a in (0.1, 0.2, 0.3) for b in (0.0, 0.3, 0.6)]
    assert at_an_end("steinis", Setting(0.3, 0.6), three) == "α, β"
