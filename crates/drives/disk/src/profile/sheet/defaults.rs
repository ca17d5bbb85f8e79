//! Defaults for figures that a sheet lacks.

use super::{Figure, Key, Origin, Sheet};
use crate::link::LinkKind;

/// A class of drives that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpeedClass {
    /// About 5,400 revolutions a minute.
    Slow,
    /// 7,200.
    Usual,
    /// 10,000.
    Fast,
    /// 15,000.
    Fastest,
}

impl SpeedClass {
    fn of(rpm: f64) -> Self {
        match rpm {
            rpm if rpm < 6_500.0 => Self::Slow,
            rpm if rpm < 8_600.0 => Self::Usual,
            rpm if rpm < 12_500.0 => Self::Fast,
            _ => Self::Fastest,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Slow => "drives of 5,400 rpm",
            Self::Usual => "drives of 7,200 rpm",
            Self::Fast => "drives of 10,000 rpm",
            Self::Fastest => "drives of 15,000 rpm",
        }
    }
}

/// Value, least value, greatest value.
type Guess = (f64, f64, f64);

/// Outer rates at 7,200 and 5,400 rpm, each up to a capacity in gigabytes.
const OUTER_USUAL: [(f64, Guess); 8] = [
    (1_100.0, (155.0, 100.0, 210.0)),
    (3_100.0, (180.0, 140.0, 215.0)),
    (5_100.0, (205.0, 160.0, 255.0)),
    (8_100.0, (230.0, 195.0, 260.0)),
    (13_000.0, (248.0, 220.0, 265.0)),
    (17_000.0, (260.0, 245.0, 272.0)),
    (21_000.0, (276.0, 262.0, 290.0)),
    (f64::INFINITY, (288.0, 270.0, 305.0)),
];
const OUTER_SLOW: [(f64, Guess); 4] = [
    (1_100.0, (120.0, 90.0, 160.0)),
    (3_100.0, (155.0, 120.0, 190.0)),
    (7_000.0, (180.0, 145.0, 200.0)),
    (f64::INFINITY, (205.0, 180.0, 225.0)),
];

const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
const GIB: f64 = 1024.0 * MIB;

impl Sheet {
    /// Adds a default for each missing figure. Capacity and speed must be there.
    pub(super) fn add_defaults(&mut self) {
        let class = SpeedClass::of(self.value(Key::Rpm).unwrap_or(7_200.0));
        self.add_rates(class);
        self.add_seeks(class);
        self.add_buffers(class);
        self.add_layout(class);
        if self.shingled {
            let of = "drives whose inside was measured";
            self.guess(Key::PersistentCache, (25.0 * GIB, 12.0 * GIB, 100.0 * GIB), of);
            self.guess(Key::Band, (29_312.0 * KIB, 16.0 * MIB, 40.0 * MIB), of);
        }
        if self.link.is_none() {
            let usual = matches!(class, SpeedClass::Slow | SpeedClass::Usual);
            self.link = Some(if usual { LinkKind::Sata } else { LinkKind::Sas });
            let source = format!("default: the link of most {}", class.words());
            self.other_sources.entry("link".to_owned()).or_insert(source);
        }
    }

    fn add_rates(&mut self, class: SpeedClass) {
        let gigabytes = self.value(Key::Capacity).unwrap_or(0.0) * 512.0 / 1e9;
        let by_size = |table: &[(f64, Guess)]| {
            let fits = table.iter().find(|(most, _)| gigabytes <= *most);
            fits.map_or((200.0, 150.0, 250.0), |(_, guess)| *guess)
        };
        let outer = match class {
            SpeedClass::Usual => by_size(&OUTER_USUAL),
            SpeedClass::Slow => by_size(&OUTER_SLOW),
            SpeedClass::Fast => (210.0, 150.0, 280.0),
            SpeedClass::Fastest => (215.0, 160.0, 260.0),
        };
        let inner = self.value(Key::Inner);
        let ratio = match class {
            SpeedClass::Slow | SpeedClass::Usual => (0.47, 0.42, 0.54),
            SpeedClass::Fast | SpeedClass::Fastest => (0.63, 0.55, 0.72),
        };
        // A known inner rate tells more about the outer rate than the class does.
        let outer =
            inner.map_or(outer, |inner| (inner / ratio.0, inner / ratio.2, inner / ratio.1));
        let source = format!("{} of this size", class.words());
        self.guess(Key::Outer, outer, &source);
        let outer = self.figures[&Key::Outer].value;
        self.guess(Key::Inner, scaled(ratio, outer), class.words());
    }

    fn add_seeks(&mut self, class: SpeedClass) {
        let (seek, next, full) = match class {
            SpeedClass::Slow => ((12.0, 10.5, 14.0), (1.0, 0.5, 2.0), (1.9, 1.8, 2.1)),
            SpeedClass::Usual => ((8.5, 7.5, 9.5), (0.5, 0.23, 1.0), (2.1, 1.95, 2.3)),
            SpeedClass::Fast => ((4.4, 3.7, 4.9), (0.4, 0.2, 0.55), (2.0, 1.85, 2.3)),
            SpeedClass::Fastest => ((3.3, 2.8, 3.7), (0.3, 0.15, 0.5), (2.0, 1.85, 2.3)),
        };
        let (switch, settle) = match class {
            SpeedClass::Slow => ((1.1, 0.7, 1.6), (1.0, 0.5, 1.5)),
            SpeedClass::Usual => ((0.9, 0.5, 1.3), (0.8, 0.3, 1.2)),
            SpeedClass::Fast => ((0.6, 0.3, 0.9), (0.5, 0.3, 0.7)),
            SpeedClass::Fastest => ((0.5, 0.2, 0.8), (0.4, 0.2, 0.6)),
        };
        self.guess(Key::Seek, seek, class.words());
        self.guess(Key::TrackToTrack, next, class.words());
        let seek = self.figures[&Key::Seek].value;
        self.guess(
            Key::FullStroke,
            scaled(full, seek),
            "its ratio to the average on drives of \
            which both are published",
        );
        self.guess(Key::HeadSwitch, switch, class.words());
        self.guess(Key::WriteSettle, settle, class.words());
    }

    fn add_buffers(&mut self, class: SpeedClass) {
        let buffer = match class {
            SpeedClass::Slow => (128.0 * MIB, 64.0 * MIB, 256.0 * MIB),
            SpeedClass::Usual => (256.0 * MIB, 128.0 * MIB, 512.0 * MIB),
            SpeedClass::Fast | SpeedClass::Fastest => (128.0 * MIB, 64.0 * MIB, 256.0 * MIB),
        };
        self.guess(Key::Cache, buffer, class.words());
        let buffer = self.figures[&Key::Cache].value;
        let small = buffer < 100.0 * MIB;
        let segments = if small { (16.0, 8.0, 32.0) } else { (32.0, 16.0, 64.0) };
        let segment = if buffer < 40.0 * MIB {
            (512.0 * KIB, 256.0 * KIB, MIB)
        } else {
            (MIB, 512.0 * KIB, 2.0 * MIB)
        };
        let unsaid = "no maker says how the buffer is cut";
        self.guess(Key::Segments, segments, unsaid);
        self.guess(Key::Segment, segment, unsaid);
        self.guess(Key::WriteBuffer, (buffer / 4.0, buffer / 8.0, buffer / 2.0), unsaid);
        self.usual(Key::QueueDepth, 32.0, "native command queueing has 32 places");
        let margin = "with it 32 reads in the queue gain 2 to 2.5 times, as on real drives";
        self.guess(Key::Margin, (0.5, 0.3, 0.8), margin);
    }

    fn add_layout(&mut self, class: SpeedClass) {
        let gigabytes = self.value(Key::Capacity).unwrap_or(0.0) * 512.0 / 1e9;
        let a_surface = match class {
            SpeedClass::Slow | SpeedClass::Usual if gigabytes > 13_000.0 => 1_000.0,
            SpeedClass::Slow | SpeedClass::Usual if gigabytes > 5_000.0 => 750.0,
            SpeedClass::Slow | SpeedClass::Usual => 500.0,
            SpeedClass::Fast => 150.0,
            SpeedClass::Fastest => 100.0,
        };
        let heads = (gigabytes / a_surface).ceil().clamp(1.0, 24.0);
        let fewest = (heads * 0.75).floor().max(1.0);
        self.guess(
            Key::Heads,
            (heads, fewest, (heads * 1.34).ceil()),
            "the capacity over that of \
            a surface of such drives",
        );
        let bands = "as on drives whose layout is known";
        self.guess(Key::BandCylinders, (65.0, 30.0, 200.0), bands);
        let retries = "between none and what was fitted to a recording";
        self.guess(Key::WriteRetry, (0.01, 0.0, 0.02), retries);
        let physical = if gigabytes > 1_500.0 { 4096.0 } else { 512.0 };
        self.usual(Key::PhysicalSector, physical, "4096 bytes from 2 TB on");
    }

    /// A default with a range. If the sheet itself has a guess without a range, that gets this
    /// range.
    fn guess(&mut self, key: Key, (value, low, high): Guess, why: &str) {
        let source = format!("guess: {why}");
        let [value, low, high] = [value, low, high].map(|value| (value * 1e4).round() / 1e4);
        self.default(key, Figure { value, source, range: Some((low, high)) });
        if let Some(own) = self.figures.get_mut(&key)
            && own.origin() == Origin::Guess
            && own.range.is_none()
        {
            own.range = Some((low.min(own.value), high.max(own.value)));
        }
    }

    fn usual(&mut self, key: Key, value: f64, why: &str) {
        self.default(key, Figure::stated(value, &format!("default: {why}")));
    }

    /// Adds `figure`, unless the sheet has one for `key`.
    fn default(&mut self, key: Key, figure: Figure) {
        #[cfg(test)]
        if crate::planted::is(crate::planted::Bug::DefaultOverSheet) {
            self.figures.insert(key, figure);
            return;
        }
        self.figures.entry(key).or_insert(figure);
    }
}

fn scaled(guess: Guess, by: f64) -> Guess {
    (guess.0 * by, guess.1 * by, guess.2 * by)
}
