//! Kinds of sectors that a device knows without reading them.

use crate::{Extent, Payload, Piece};

/// Kind of sectors, known without reading them. After the block status of NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentKind {
    /// Content is stored; only a read tells which.
    Data,
    /// Reads as zeroes, and space is set aside for it.
    Zero,
    /// Reads as zeroes, and nothing is stored.
    Hole,
    /// As [`ExtentKind::Data`]; the newest version lies in a log, not in its own place.
    Logged,
}

impl ExtentKind {
    /// Whether the sectors surely read as zeroes. Sectors of other kinds may do so, too.
    #[must_use]
    pub const fn reads_as_zeroes(self) -> bool {
        matches!(self, Self::Zero | Self::Hole)
    }
}

/// Extents by address without gaps, and the kind of each. None is empty, and neighbours differ in
/// kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents(Vec<(Extent, ExtentKind)>);

impl Extents {
    /// A list of one extent, or of none if `extent` is empty.
    #[must_use]
    pub fn of(extent: Extent, kind: ExtentKind) -> Self {
        let mut extents = Self::default();
        extents.push(extent, kind);
        extents
    }

    /// The kinds that follow from `content`, which was read at `within`: known zeroes are of kind
    /// `zeroes`, all else is data.
    #[must_use]
    pub fn of_content(within: Extent, content: &Payload, zeroes: ExtentKind) -> Self {
        let (mut extents, mut next) = (Self::default(), within.start);
        for piece in content.pieces() {
            let kind = match piece {
                Piece::Zeroes(_) => zeroes,
                Piece::Bytes(_) | Piece::Tags { .. } | Piece::Absent(_) => ExtentKind::Data,
            };
            extents.push(Extent { start: next, len: piece.len() }, kind);
            next = next + piece.len();
        }
        extents
    }

    /// Appends `extent`. An empty extent adds nothing.
    ///
    /// # Panics
    /// If it does not begin where the last one ends.
    pub fn push(&mut self, extent: Extent, kind: ExtentKind) {
        if extent.is_empty() {
            return;
        }
        match self.0.last_mut() {
            Some((last, same)) => {
                assert_eq!(last.end(), extent.start, "extents follow one another");
                if *same == kind {
                    last.len += extent.len;
                } else {
                    self.0.push((extent, kind));
                }
            }
            None => self.0.push((extent, kind)),
        }
    }

    /// All extents by address.
    pub fn iter(&self) -> impl Iterator<Item = (Extent, ExtentKind)> {
        self.0.iter().copied()
    }

    /// The extent from the first sector to the last; empty if the list is empty.
    #[must_use]
    pub fn whole(&self) -> Extent {
        match (self.0.first(), self.0.last()) {
            (Some((first, _)), Some((last, _))) => Extent::between(first.start, last.end()),
            _ => Extent::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sectors;
    use ExtentKind::{Data, Hole, Zero};

    #[test]
    fn neighbours_of_one_kind_are_one_extent() {
        let mut extents = Extents::of(Extent::new(5, 2), Data);
        extents.push(Extent::new(7, 0), Hole);
        extents.push(Extent::new(7, 3), Data);
        extents.push(Extent::new(10, 1), Hole);
        let wanted = [(Extent::new(5, 5), Data), (Extent::new(10, 1), Hole)];
        assert_eq!(extents.iter().collect::<Vec<_>>(), wanted);
        assert_eq!(extents.whole(), Extent::new(5, 6));
        assert_eq!(Extents::default().whole(), Extent::default());
    }

    #[test]
    #[should_panic(expected = "follow one another")]
    fn a_gap_between_extents_is_an_error_of_the_device() {
        Extents::of(Extent::new(0, 1), Data).push(Extent::new(2, 1), Data);
    }

    #[test]
    fn content_tells_where_zeroes_are() {
        let mut content = Payload::tags(1, Sectors(2));
        content.append(Payload::zeroes(Sectors(3)));
        content.append(Payload::absent(Sectors(1)));
        let extents = Extents::of_content(Extent::new(10, 6), &content, Zero);
        let wanted =
            [(Extent::new(10, 2), Data), (Extent::new(12, 3), Zero), (Extent::new(15, 1), Data)];
        assert_eq!(extents.iter().collect::<Vec<_>>(), wanted);
    }
}
