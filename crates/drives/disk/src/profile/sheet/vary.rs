//! Draws drives that all agree with one sheet.

use manylogs_block::Rng;

use super::{Figure, Key, Sheet};

/// Sizes are multiples of this number of bytes.
const UNIT_BYTES: f64 = 4096.0;
/// The greatest drawn inner rate, as a share of the outer rate.
const INNER_SHARE_MAX: f64 = 0.95;

impl Sheet {
    /// The sheet with uncertain figures set to these shares of their ranges, from 0 (least) to 1
    /// (greatest). Figures without a share keep their values and ranges.
    #[must_use]
    pub fn at(&self, shares: &[(Key, f64)]) -> Self {
        let mut drawn = self.clone();
        let ranges: Vec<(Key, (f64, f64))> = self.ranges().collect();
        for (key, share) in shares {
            let Some((_, range)) = ranges.iter().find(|(other, _)| other == key) else { continue };
            #[cfg(test)]
            let share = if crate::planted::is(crate::planted::Bug::RangeStopsAtMiddle) {
                &(share / 2.0)
            } else {
                share
            };
            let value = rounded(*key, place(*key, *range, *share));
            let source = format!("default: drawn between {} and {}", range.0, range.1);
            drawn.figures.insert(*key, Figure { value, source, range: None });
        }
        drawn.keep_together();
        drawn
    }

    /// A drive drawn with `seed`: every uncertain figure lies anywhere in its range.
    #[must_use]
    pub fn drawn(&self, seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x6472_6976_6573);
        let shares: Vec<(Key, f64)> = self.ranges().map(|(key, _)| (key, rng.unit())).collect();
        let mut drawn = self.at(&shares);
        drawn.name = format!("{}-{seed}", self.name);
        // A drawn drive is no existing drive.
        drawn.serials.clear();
        drawn.models.clear();
        drawn
    }

    /// Figures that were drawn separately may contradict each other: the less important one is
    /// adjusted.
    fn keep_together(&mut self) {
        let value = |sheet: &Self, key| sheet.value(key).unwrap_or(0.0);
        let most = value(self, Key::Outer) * INNER_SHARE_MAX;
        let seek = value(self, Key::Seek);
        let limits = [
            (Key::Inner, 0.0, most),
            (Key::TrackToTrack, 0.0, seek * 0.5),
            (Key::FullStroke, seek * 1.6, seek * 2.6),
        ];
        for (key, low, high) in limits {
            if let Some(figure) = self.figures.get_mut(&key)
                && figure.may_range()
            {
                figure.value = figure.value.clamp(low, high);
                figure.range =
                    figure.range.map(|(a, b)| (a.min(figure.value), b.max(figure.value)));
            }
        }
    }
}

fn place(key: Key, (low, high): (f64, f64), share: f64) -> f64 {
    if key.by_ratio() && low > 0.0 {
        low * (high / low).powf(share)
    } else {
        low + (high - low) * share
    }
}

fn rounded(key: Key, value: f64) -> f64 {
    match key.kind() {
        super::FigureKind::Bytes => (value / UNIT_BYTES).round() * UNIT_BYTES,
        super::FigureKind::Count => value.round(),
        super::FigureKind::Ms => (value * 1e3).round() / 1e3,
        super::FigureKind::MbS => (value * 10.0).round() / 10.0,
        super::FigureKind::Number => (value * 1e5).round() / 1e5,
        super::FigureKind::Capacity => value,
    }
}
