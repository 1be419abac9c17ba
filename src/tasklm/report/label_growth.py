"""The part of the report that says what more labels would bring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasklm.evaluate.scores import metric_name
from tasklm.forecasting.growth import Growth
from tasklm.report.charts import line_chart
from tasklm.report.page import Html, clipped, el, joined


def label_growth(values: Mapping[str, Any] | None) -> Html:
    """The sentence and the learning curve, or why there is none; nothing for older runs."""
    if not values:
        return Html("")
    if "skipped" in values:
        return el("p", clipped(f"Not measured: {values['skipped']}.", 500))
    growth = Growth.from_dict(dict(values))
    lines = {"measured on dev": growth.measured, "power law, up to twice the labels": growth.fitted}
    title = f"{metric_name(growth.metric)} of the linear model by labels"
    sentence = el("p", clipped(growth.sentence() + ".", 500))
    chart = line_chart(title, lines, "labels")
    return joined([sentence, el("div", chart, class_="charts")])
