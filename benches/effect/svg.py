"""Grouped bars as SVG, with nothing but the standard library."""
import math
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 240  # of a panel
LEFT, RIGHT, ABOVE, BELOW = 52, 12, 42, 44  # of its axes
LEGEND = 26
FONT = 'font-family="sans-serif" font-size="11" fill="#222"'


@dataclass
class Panel:
    """Bars in groups; a bar that is None is left out."""

    title: str
    groups: list
    bars: list
    top: float | None
    logarithmic: bool
    below: str


def text(x, y, content, anchor="middle", more=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {FONT} {more}>'
            f"{escape(str(content))}</text>")


def nice(value):
    """The next of 1, 2, 2.5, 5, 10, ... that is not below."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in [1, 2, 2.5, 5, 10] if step * power >= value * 0.999)


class Scale:
    """From values to heights."""

    def __init__(self, panel):
        values = [value for group in panel.bars for value in group if value]
        largest = max([panel.top or 0] + values, default=1) or 1
        self.logarithmic = panel.logarithmic
        if self.logarithmic:
            smallest = min(values, default=1)
            self.low = 10 ** math.floor(math.log10(smallest))
            self.high = max(10 ** math.ceil(math.log10(largest)), self.low * 10)
            decades = round(math.log10(self.high / self.low))
            self.marks = [self.low * 10 ** power for power in range(decades + 1)]
        else:
            self.low, step = 0, nice(largest / 5)
            self.high = math.ceil(largest / step - 1e-9) * step
            self.marks = [step * i for i in range(round(self.high / step) + 1)]

    def share(self, value):
        if self.logarithmic:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return value / self.high


def draw(panel, x, y, legend):
    scale, out = Scale(panel), []
    left, right = x + LEFT, x + WIDTH - RIGHT
    above, below = y + ABOVE, y + HEIGHT - BELOW
    out.append(text(x + WIDTH / 2, y + 18, panel.title, more='font-weight="bold"'))
    for mark in scale.marks:
        at = below - scale.share(mark) * (below - above)
        out.append(f'<line x1="{left}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" '
                   'stroke="#ddd" stroke-width="1"/>')
        out.append(text(left - 6, at + 4, f"{mark:,.10g}", "end"))
    group_width = (right - left) / len(panel.groups)
    for index, (name, group) in enumerate(zip(panel.groups, panel.bars)):
        begin = left + (index + 0.1) * group_width
        width = 0.8 * group_width / len(group)
        out.append(text(begin + 0.4 * group_width, below + 15, name))
        for place, (value, (what, colour, hollow)) in enumerate(zip(group, legend)):
            if value is None:
                continue
            height = max(scale.share(value) * (below - above), 0.5)
            out.append(f'<rect x="{begin + place * width + 0.7:.1f}" y="{below - height:.1f}" '
                       f'width="{width - 1.4:.1f}" height="{height:.1f}" {fill(colour, hollow)}>'
                       f"<title>{escape(what)}, {escape(name)}: {value:.1f}</title></rect>")
            if width > 19:
                out.append(text(begin + (place + 0.5) * width, below - height - 3,
                                f"{value:.0f}" if value >= 10 else f"{value:.1f}"))
    out.append(f'<line x1="{left}" x2="{right}" y1="{below}" y2="{below}" stroke="#222"/>')
    if panel.below:
        out.append(text((left + right) / 2, below + 32, panel.below))
    return out


def fill(colour, hollow):
    inside = "#ffffff" if hollow else colour
    return f'fill="{inside}" stroke="{colour}" stroke-width="1.2"'


def picture(title, panels, columns, legend):
    """The panels row by row; the legend's entries are (name, colour, hollow)."""
    rows = math.ceil(len(panels) / columns)
    entry = 150
    a_row = max(1, (columns * WIDTH - 10) // entry)
    legend_rows = math.ceil(len(legend) / a_row)
    width, height = columns * WIDTH, rows * HEIGHT + legend_rows * LEGEND
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img">', f"<title>{escape(title)}</title>",
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>']
    for index, (name, colour, hollow) in enumerate(legend):
        x, y = 10 + index % a_row * entry, 8 + index // a_row * LEGEND
        out.append(f'<rect x="{x}" y="{y}" width="14" height="12" {fill(colour, hollow)}/>')
        out.append(text(x + 20, y + 10, name, "start"))
    for index, panel in enumerate(panels):
        out += draw(panel, index % columns * WIDTH,
                    legend_rows * LEGEND + index // columns * HEIGHT, legend)
    return "\n".join(out + ["</svg>", ""])
