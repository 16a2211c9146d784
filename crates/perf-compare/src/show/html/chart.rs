//! Charts as SVG. Colours come from the page's style, so that they follow its dark mode; arms differ in their marks and
//! dashes as well.

use std::fmt::Write;

use super::escape;
use crate::words::number;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 14.0;
/// Colours that the style has.
pub(super) const COLOURS: usize = 6;
/// Of lines, so that they are told apart without their colours.
const DASHES: [&str; COLOURS] = ["none", "7 4", "2 3", "10 3 2 3", "4 2", "1 4"];

/// One arm's line.
pub(super) struct Series {
    pub(super) label: String,
    /// Each point's place on the first axis, and its rounds; not empty.
    pub(super) points: Vec<(f64, Vec<f64>)>,
}

/// A range that values are shown in.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// Over `values`, which are positive where the axis is logarithmic, a little wider than they reach.
    fn over(values: impl Iterator<Item = f64>, is_log: bool, from: f64, to: f64) -> Self {
        let scale = |value: f64| if is_log { value.ln() } else { value };
        let (low, high) = values
            .map(scale)
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
        let margin = if high > low { 0.05 * (high - low) } else { 0.05 * low.abs().max(1.0) };
        Self { low: low - margin, high: high + margin, from, to, is_log }
    }

    fn at(&self, value: f64) -> f64 {
        let value = if self.is_log { value.ln() } else { value };
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Values worth a line, 1, 2 and 5 times powers of ten; of a wide logarithmic range powers only.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = if self.is_log { (self.low.exp(), self.high.exp()) } else { (self.low, self.high) };
        if self.is_log && high / low > 20.0 {
            let factors: &[f64] = if high / low > 2000.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
            let all = powers.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
            return all.filter(|tick| (low..=high).contains(tick)).collect();
        }
        let rough = (high - low) / 5.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (low / step).ceil();
        (0..=12).map(|index| (first + f64::from(index)) * step).take_while(|tick| *tick <= high).collect()
    }
}

/// A chart's beginning: what it is, for those who can't see it.
fn open(height: f64, title: &str) -> String {
    let title = escape(title);
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\"><title>{title}</title>\n"
    )
}

/// Sizes against values, both logarithmic: medians, a band from the smallest to the largest round, and every round.
pub(super) fn curves(title: &str, unit: &str, series: &[Series], label_of: impl Fn(f64) -> String) -> String {
    let height = 340.0;
    let places = || series.iter().flat_map(|one| one.points.iter().map(|(x, _)| *x));
    let values =
        series.iter().flat_map(|one| one.points.iter().flat_map(|(_, rounds)| rounds.iter().copied()));
    let x = Axis::over(places(), false, LEFT + 10.0, WIDTH - RIGHT);
    let y = Axis::over(values, true, height - 44.0, TOP + 18.0);
    let mut svg = open(height, title);
    vertical_axis(&mut svg, &y, unit);
    let mut ticks: Vec<f64> = places().collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    // As many labels as have room.
    let stride = ticks.len().div_ceil(9).max(1);
    for tick in ticks.iter().step_by(stride) {
        text(&mut svg, x.at(*tick), height - 24.0, "middle", &label_of(*tick));
    }
    for (index, one) in series.iter().enumerate() {
        curve(&mut svg, index, one, &x, &y);
    }
    legend(&mut svg, height - 6.0, series.iter().map(|one| one.label.as_str()));
    svg + "</svg>\n"
}

fn curve(svg: &mut String, index: usize, one: &Series, x: &Axis, y: &Axis) {
    let colour = index % COLOURS;
    let edge = |pick: fn(f64, f64) -> f64, none: f64| {
        one.points.iter().map(move |(place, rounds)| (*place, rounds.iter().copied().fold(none, pick)))
    };
    let path = |points: Vec<(f64, f64)>| {
        let at = |(place, value): &(f64, f64)| format!("{:.1},{:.1}", x.at(*place), y.at(*value));
        points.iter().map(at).collect::<Vec<_>>().join(" ")
    };
    let upper: Vec<_> = edge(f64::max, 0.0).collect();
    let lower: Vec<_> = edge(f64::min, f64::INFINITY).collect();
    let around = upper.into_iter().chain(lower.into_iter().rev()).collect();
    let _ = writeln!(svg, "<polygon class=\"c{colour} band\" points=\"{}\"/>", path(around));
    let medians =
        one.points.iter().map(|(place, rounds)| (*place, crate::arm::median(rounds))).collect::<Vec<_>>();
    let _ = writeln!(
        svg,
        "<polyline class=\"c{colour} line\" stroke-dasharray=\"{}\" points=\"{}\"/>",
        DASHES[colour],
        path(medians.clone())
    );
    for (place, rounds) in &one.points {
        for value in rounds {
            let _ = writeln!(
                svg,
                "<circle class=\"c{colour} dot\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"1.8\"/>",
                x.at(*place),
                y.at(*value)
            );
        }
    }
    for (place, median) in medians {
        mark(svg, colour, x.at(place), y.at(median));
    }
}

/// Round after round of a few arms.
pub(super) fn rounds(title: &str, unit: &str, series: &[Series]) -> String {
    let height = 240.0;
    let all = || series.iter().flat_map(|one| one.points.iter());
    let x = Axis::over(all().map(|(place, _)| *place), false, LEFT + 10.0, WIDTH - RIGHT);
    let y = Axis::over(all().flat_map(|(_, values)| values.iter().copied()), true, height - 44.0, TOP + 18.0);
    let mut svg = open(height, title);
    vertical_axis(&mut svg, &y, unit);
    let last = all().map(|(place, _)| *place as usize).max().unwrap_or(1);
    for round in (1..=last).step_by(last.div_ceil(20).max(1)) {
        text(&mut svg, x.at(round as f64), height - 24.0, "middle", &round.to_string());
    }
    for (index, one) in series.iter().enumerate() {
        let colour = index % COLOURS;
        let at: Vec<(f64, f64)> = one
            .points
            .iter()
            .flat_map(|(place, values)| values.iter().map(|value| (x.at(*place), y.at(*value))))
            .collect();
        let path: Vec<String> = at.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline class=\"c{colour} line\" stroke-dasharray=\"{}\" points=\"{}\"/>",
            DASHES[colour],
            path.join(" ")
        );
        at.iter().for_each(|(x, y)| mark(&mut svg, colour, *x, *y));
    }
    legend(&mut svg, height - 6.0, series.iter().map(|one| one.label.as_str()));
    svg + "</svg>\n"
}

/// One line of a chart of changes.
pub(super) struct Change {
    pub(super) label: String,
    /// In per cent.
    pub(super) estimate: f64,
    pub(super) interval: Option<(f64, f64)>,
}

/// Each change with its interval, against the band of what is not worth acting on.
pub(super) fn changes(title: &str, threshold: f64, lines: &[Change]) -> String {
    const STEP: f64 = 22.0;
    let left = LEFT + 130.0;
    let height = TOP + STEP * (lines.len() as f64 + 1.0) + 30.0;
    let ends = |line: &Change| {
        let (low, high) = line.interval.unwrap_or((line.estimate, line.estimate));
        [low, high, line.estimate]
    };
    let reach = lines.iter().flat_map(ends).chain([-1.5 * threshold, 1.5 * threshold, 0.0]);
    let x = Axis::over(reach, false, left, WIDTH - RIGHT);
    let bottom = height - 30.0;
    let mut svg = open(height, title);
    let (from, to) = (x.at(-threshold), x.at(threshold));
    let _ = writeln!(
        svg,
        "<rect class=\"delta\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
        to - from,
        bottom - TOP
    );
    for tick in x.ticks() {
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>",
            x.at(tick)
        );
        text(&mut svg, x.at(tick), bottom + 16.0, "middle", &format!("{} %", short(tick, true)));
    }
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{TOP}\" y2=\"{bottom:.1}\"/>",
        x.at(0.0)
    );
    for (index, line) in lines.iter().enumerate() {
        let y = TOP + STEP * (index as f64 + 1.0);
        text(&mut svg, left - 10.0, y + 4.0, "end", &line.label);
        if let Some((low, high)) = line.interval {
            let _ = writeln!(
                svg,
                "<line class=\"c0 line\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                x.at(low),
                x.at(high)
            );
        }
        let _ = writeln!(
            svg,
            "<circle class=\"c0 dot\" cx=\"{:.1}\" cy=\"{y:.1}\" r=\"4\"/>",
            x.at(line.estimate)
        );
    }
    svg + "</svg>\n"
}

fn vertical_axis(svg: &mut String, y: &Axis, unit: &str) {
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
            WIDTH - RIGHT
        );
        text(svg, LEFT - 6.0, at + 4.0, "end", &short(tick, false));
    }
    let _ = writeln!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{LEFT}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
        y.from, y.to
    );
    text(svg, LEFT - 6.0, TOP, "end", unit);
}

/// A number on an axis, without zeros at its end.
fn short(value: f64, signed: bool) -> String {
    let shown = if value.abs() < 1e-12 {
        "0".to_owned()
    } else {
        let text = number(value);
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    if signed && value > 1e-12 { format!("+{shown}") } else { shown }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    // Longer ones would reach into the chart; the table has them whole.
    let short: String = words.chars().take(28).collect();
    let more = if words.chars().count() > 28 { "…" } else { "" };
    let _ =
        writeln!(svg, "<text class=\"{anchor}\" x=\"{x:.1}\" y=\"{y:.1}\">{}{more}</text>", escape(&short));
}

/// A circle, a square, a triangle, a diamond, a cross or a ring.
fn mark(svg: &mut String, colour: usize, x: f64, y: f64) {
    let shape = match colour {
        0 => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\""),
        1 => format!("<rect x=\"{:.1}\" y=\"{:.1}\" width=\"7\" height=\"7\"", x - 3.5, y - 3.5),
        2 => path(&[(x, y - 5.0), (x + 4.5, y + 3.5), (x - 4.5, y + 3.5)]),
        3 => path(&[(x, y - 5.0), (x + 5.0, y), (x, y + 5.0), (x - 5.0, y)]),
        4 => path(&[(x - 4.0, y - 4.0), (x, y), (x + 4.0, y - 4.0), (x, y + 5.0)]),
        _ => format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\""),
    };
    let _ = writeln!(svg, "{shape} class=\"c{colour} hollow\"/>");
}

fn path(corners: &[(f64, f64)]) -> String {
    let corners: Vec<String> = corners.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    format!("<polygon points=\"{}\"", corners.join(" "))
}

fn legend<'a>(svg: &mut String, y: f64, labels: impl Iterator<Item = &'a str>) {
    let labels: Vec<&str> = labels.collect();
    let each = (WIDTH - LEFT - RIGHT) / labels.len().max(1) as f64;
    for (index, label) in labels.into_iter().enumerate() {
        let (colour, x) = (index % COLOURS, LEFT + 6.0 + each * index as f64);
        let _ = writeln!(
            svg,
            "<line class=\"c{colour} line\" stroke-dasharray=\"{}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{2:.1}\" y2=\"{2:.1}\"/>",
            DASHES[colour],
            x + 24.0,
            y - 4.0
        );
        mark(svg, colour, x + 12.0, y - 4.0);
        text(svg, x + 30.0, y, "start", label);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_within_the_axis() {
        let of =
            |low: f64, high: f64, is_log| Axis::over([low, high].into_iter(), is_log, 0.0, 100.0).ticks();
        assert_eq!(of(1.0, 10_000.0, true), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(of(1.0, 100.0, true), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(of(98.0, 102.0, true), [98.0, 99.0, 100.0, 101.0, 102.0]);
        assert_eq!(of(-2.0, 2.0, false), [-2.0, -1.0, 0.0, 1.0, 2.0]);
        for value in [1e-9, 5.0, 1e12] {
            assert!(of(value, value, true).len() < 14);
        }
    }

    #[test]
    fn values_lie_where_they_belong() {
        let axis = Axis::over([10.0, 1000.0].into_iter(), true, 100.0, 0.0);
        assert!((axis.at(100.0) - 50.0).abs() < 1e-9);
        assert!(axis.at(10.0) > axis.at(1000.0));
        assert!(Axis::over(std::iter::empty(), true, 0.0, 1.0).at(1.0).is_finite());
    }

    #[test]
    fn nothing_of_a_label_is_markup() {
        let series = [Series { label: "<b>\"'&".into(), points: vec![(1.0, vec![2.0])] }];
        for svg in [curves("<x>", "µs", &series, |_| "<s>".into()), rounds("<x>", "<u>", &series)] {
            assert!(
                !svg.contains("<b>") && !svg.contains("<x>") && !svg.contains("<s>") && !svg.contains("<u>"),
                "{svg}"
            );
            assert!(svg.contains("&lt;b&gt;&quot;&#39;&amp;"));
        }
    }
}
