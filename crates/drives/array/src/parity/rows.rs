//! Writes of rows: which parts of a row are written, and what must be read first.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Completer, Extent, IoError, IoResult, Lba, PAGE, Payload, Sectors};

/// A request, until all of its parts are written.
pub(super) struct Ticket {
    left: Cell<usize>,
    failed: RefCell<Option<IoError>>,
    completer: Cell<Option<Completer>>,
}

impl Ticket {
    /// A request of `parts` parts.
    pub(super) fn new(parts: usize, completer: Completer) -> Rc<Self> {
        let (left, completer) = (Cell::new(parts), Cell::new(Some(completer)));
        Rc::new(Self { left, failed: RefCell::default(), completer })
    }

    /// Notes the end of a part; the last one answers the request.
    fn end_part(&self, result: &IoResult<()>) {
        if let Err(error) = result {
            self.failed.borrow_mut().get_or_insert_with(|| error.clone());
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(completer) = self.completer.take()
        {
            let failed = self.failed.take();
            completer.complete(failed.map_or_else(|| Ok(Payload::default()), Err));
        }
    }
}

/// A part of a write: sectors of one page.
pub(super) struct Part {
    /// The column of data.
    pub(super) column: u16,
    /// Where in the page the part begins.
    pub(super) from: Sectors,
    pub(super) payload: Payload,
    pub(super) fua: bool,
    pub(super) urgent: bool,
    pub(super) ticket: Rc<Ticket>,
}

/// How a row is written: rows next to one another that are written alike go together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// The columns that are written, and whether the whole page is.
    pub(super) columns: Vec<(u16, bool)>,
    pub(super) fua: bool,
    pub(super) urgent: bool,
}

impl Kind {
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut columns: Vec<(u16, u8)> = Vec::new();
        for part in parts {
            let covered =
                (0..part.payload.len().0).fold(0, |mask, at| mask | 1 << (part.from.0 + at));
            match columns.iter_mut().find(|(column, _)| *column == part.column) {
                Some((_, mask)) => *mask |= covered,
                None => columns.push((part.column, covered)),
            }
        }
        columns.sort_unstable();
        let columns = columns.into_iter().map(|(column, mask)| (column, mask == u8::MAX)).collect();
        let fua = parts.iter().any(|part| part.fua);
        Self { columns, fua, urgent: parts.iter().any(|part| part.urgent) }
    }

    pub(super) fn writes(&self, column: u16) -> bool {
        self.columns.iter().any(|(written, _)| *written == column)
    }

    fn writes_whole(&self, column: u16) -> bool {
        self.columns.contains(&(column, true))
    }
}

/// Rows of one stripe that follow one another and are written alike.
pub(super) struct Group {
    pub(super) first: u64,
    pub(super) kind: Kind,
    /// The parts of each row, in the order of the requests.
    pub(super) rows: Vec<Vec<Part>>,
}

impl Group {
    /// The numbers of its rows.
    pub(super) fn numbers(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.rows.len() as u64
    }

    /// The sectors of the group on each member.
    pub(super) fn place(&self) -> Extent {
        let len = Sectors(self.rows.len() as u64 * PAGE.0);
        Extent { start: Lba(self.first * PAGE.0), len }
    }

    /// The new content of a column: what is written, over the old content.
    pub(super) fn content(&self, column: u16, old: Option<&Payload>) -> Payload {
        let mut out = Payload::default();
        for (row, parts) in (0..).zip(&self.rows) {
            let at = Sectors(row * PAGE.0);
            let old = old.map(|old| old.slice(at, PAGE));
            let parts = parts.iter().filter(|part| part.column == column);
            out.append(parts.fold(old, |page, part| Some(over(page, part))).unwrap_or_default());
        }
        out
    }

    /// Answers the requests whose last part this was.
    pub(super) fn end(&self, result: &IoResult<()>) {
        self.rows.iter().flatten().for_each(|part| part.ticket.end_part(result));
    }
}

/// A page with a part written over it. Without the page the part must be all of it, or the first of
/// several that are.
fn over(page: Option<Payload>, part: &Part) -> Payload {
    let (from, len) = (part.from, part.payload.len());
    if len == PAGE {
        return part.payload.clone();
    }
    let page = page.unwrap_or_else(|| Payload::absent(PAGE));
    let mut out = page.slice(Sectors(0), from);
    out.append(part.payload.clone());
    let end = from + len;
    out.append(page.slice(end, PAGE - end));
    out
}

/// How the parity of rows is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// From the old content of the columns that are not written as a whole.
    Others,
    /// From the change: the old content of what is written, and the old parity.
    Change,
    /// From everything there is, because a member of the data is missing.
    Everything,
}

impl Method {
    /// As md chooses: what needs fewer reads, and the columns that are not written if both need the
    /// same. `live` parities can be written.
    pub(super) fn choose(kind: &Kind, columns: u16, live: usize, is_missing: bool) -> Self {
        let others = (0..columns).filter(|column| !kind.writes_whole(*column)).count();
        let change = kind.columns.len() + live;
        match (is_missing && others > 0, change < others) {
            (true, _) => Self::Everything,
            (false, true) => Self::Change,
            (false, false) => Self::Others,
        }
    }

    /// The columns of data that must be read.
    pub(super) fn reads(self, kind: &Kind, columns: u16) -> Vec<u16> {
        let needed = |column: &u16| match self {
            Self::Others => !kind.writes_whole(*column),
            Self::Change => kind.writes(*column),
            Self::Everything => true,
        };
        (0..columns).filter(needed).collect()
    }

    /// Whether the parities must be read.
    pub(super) const fn reads_parity(self) -> bool {
        !matches!(self, Self::Others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(columns: &[(u16, bool)]) -> Kind {
        Kind { columns: columns.to_vec(), fua: false, urgent: false }
    }

    #[test]
    fn md_reads_what_is_less() {
        let full = kind(&[(0, true), (1, true), (2, true)]);
        let one = kind(&[(1, true)]);
        // RAID-5 of four: one page costs two reads either way.
        assert_eq!(Method::choose(&full, 3, 1, false), Method::Others);
        assert_eq!(Method::Others.reads(&full, 3), [0_u16; 0]);
        assert_eq!(Method::choose(&one, 3, 1, false), Method::Others);
        assert_eq!(Method::Others.reads(&one, 3), [0, 2]);
        // RAID-6 of eight: one page costs three reads.
        assert_eq!(Method::choose(&one, 6, 2, false), Method::Change);
        assert_eq!(Method::Change.reads(&one, 6), [1]);
        let part = kind(&[(0, true), (1, true), (2, false)]);
        assert_eq!(Method::Others.reads(&part, 3), [2]);
        assert_eq!(Method::choose(&full, 3, 1, true), Method::Others);
        assert_eq!(Method::choose(&part, 3, 1, true), Method::Everything);
    }
}
