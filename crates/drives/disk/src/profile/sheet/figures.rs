//! The figures that a data sheet, or its reader, may give.

/// A figure of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Number of sectors that the host can address.
    Capacity,
    /// Revolutions a minute.
    Rpm,
    /// Sustained rate at the first address, MB/s.
    Outer,
    /// Sustained rate at the last address, MB/s.
    Inner,
    /// Mean time of a seek of a read, over uniformly random pairs, ms.
    Seek,
    /// Time to the next track, ms.
    TrackToTrack,
    /// Time from the first track to the last, ms.
    FullStroke,
    /// Time to change heads, ms.
    HeadSwitch,
    /// How much longer a write settles than a read, ms.
    WriteSettle,
    /// The buffer, bytes.
    Cache,
    /// Read-ahead segments.
    Segments,
    /// Size of a segment, bytes.
    Segment,
    /// The part of the buffer for writes, bytes.
    WriteBuffer,
    /// Recording surfaces.
    Heads,
    /// Cylinders that one head passes before the next takes over.
    BandCylinders,
    /// Chance that a write takes an extra revolution.
    WriteRetry,
    /// Commands in the queue.
    QueueDepth,
    /// Margin of the drive's scheduler for an angle that it does not know exactly, ms.
    Margin,
    /// Bytes of a physical sector.
    PhysicalSector,
    /// Of a shingled drive: the persistent cache, bytes.
    PersistentCache,
    /// Of a shingled drive: a band, bytes.
    Band,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A whole number.
    Count,
    /// A plain number.
    Number,
    /// Milliseconds; text may say `us` or `ms`.
    Ms,
    /// 10^6 bytes a second; text may say `MB/s` or `MiB/s`.
    MbS,
    /// Bytes, in powers of 1024: K, M, G.
    Bytes,
    /// The capacity: text in powers of 1000, or sectors of 512 bytes.
    Capacity,
}

impl Key {
    /// All keys, in the order in which they are written.
    pub const ALL: [Self; 21] = [
        Self::Capacity,
        Self::Rpm,
        Self::Outer,
        Self::Inner,
        Self::Seek,
        Self::TrackToTrack,
        Self::FullStroke,
        Self::HeadSwitch,
        Self::WriteSettle,
        Self::Cache,
        Self::Segments,
        Self::Segment,
        Self::WriteBuffer,
        Self::Heads,
        Self::BandCylinders,
        Self::WriteRetry,
        Self::QueueDepth,
        Self::Margin,
        Self::PhysicalSector,
        Self::PersistentCache,
        Self::Band,
    ];

    /// Name in a profile.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Rpm => "rpm",
            Self::Outer => "outer_mb_s",
            Self::Inner => "inner_mb_s",
            Self::Seek => "seek_ms",
            Self::TrackToTrack => "track_to_track_ms",
            Self::FullStroke => "full_stroke_ms",
            Self::HeadSwitch => "head_switch_ms",
            Self::WriteSettle => "write_settle_ms",
            Self::Cache => "cache",
            Self::Segments => "segments",
            Self::Segment => "segment",
            Self::WriteBuffer => "write_buffer",
            Self::Heads => "heads",
            Self::BandCylinders => "band_cylinders",
            Self::WriteRetry => "write_retry",
            Self::QueueDepth => "queue_depth",
            Self::Margin => "prediction_margin_ms",
            Self::PhysicalSector => "physical_sector",
            Self::PersistentCache => "persistent_cache",
            Self::Band => "band",
        }
    }

    /// Name of the figure, as part of a sentence.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Capacity => "the capacity",
            Self::Rpm => "the speed",
            Self::Outer => "the outer rate",
            Self::Inner => "the inner rate",
            Self::Seek => "the average seek",
            Self::TrackToTrack => "the seek to the next track",
            Self::FullStroke => "the longest seek",
            Self::HeadSwitch => "the change of heads",
            Self::WriteSettle => "the settling of writes",
            Self::Cache => "the buffer",
            Self::Segments => "the number of read-ahead segments",
            Self::Segment => "the read-ahead",
            Self::WriteBuffer => "the buffer for writes",
            Self::Heads => "the number of heads",
            Self::BandCylinders => "the layout in bands",
            Self::WriteRetry => "the retries of writes",
            Self::QueueDepth => "the depth of the queue",
            Self::Margin => "the margin of the drive's scheduler",
            Self::PhysicalSector => "the physical sector",
            Self::PersistentCache => "the persistent cache",
            Self::Band => "the bands",
        }
    }

    /// How the figure is written.
    #[must_use]
    pub const fn kind(self) -> FigureKind {
        match self {
            Self::Capacity => FigureKind::Capacity,
            Self::Rpm | Self::WriteRetry => FigureKind::Number,
            Self::Outer | Self::Inner => FigureKind::MbS,
            Self::Seek
            | Self::TrackToTrack
            | Self::FullStroke
            | Self::HeadSwitch
            | Self::WriteSettle
            | Self::Margin => FigureKind::Ms,
            Self::Cache
            | Self::Segment
            | Self::WriteBuffer
            | Self::PersistentCache
            | Self::Band => FigureKind::Bytes,
            Self::Segments
            | Self::Heads
            | Self::BandCylinders
            | Self::QueueDepth
            | Self::PhysicalSector => FigureKind::Count,
        }
    }

    /// Whether values are drawn by their ratio rather than by their difference.
    pub(super) const fn by_ratio(self) -> bool {
        matches!(self.kind(), FigureKind::Bytes | FigureKind::Count)
    }
}
