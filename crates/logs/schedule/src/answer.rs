//! Delivers answers, and joins the answers of a request's pieces.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use manylogs_block::{Completer, IoError, IoResult, Payload};

/// Receiver of the answer of a request or of a piece of a request.
pub(crate) enum Answer {
    Whole(Completer),
    Piece(Rc<Pieces>, usize),
}

/// A request that the scheduler divides into pieces.
pub(crate) struct Pieces {
    completer: Cell<Option<Completer>>,
    /// Number of unanswered pieces, plus one until the last piece has been handed out.
    left: Cell<usize>,
    /// Content of the pieces in order of address.
    parts: RefCell<Vec<Payload>>,
    /// The error of the piece with the lowest address.
    error: RefCell<Option<(usize, IoError)>>,
}

impl Pieces {
    pub(crate) fn new(completer: Completer) -> Rc<Self> {
        Rc::new(Self {
            completer: Cell::new(Some(completer)),
            left: Cell::new(1),
            parts: RefCell::default(),
            error: RefCell::default(),
        })
    }

    /// Receiver for the answer of the next piece by address. No piece may follow the last one.
    pub(crate) fn next(self: &Rc<Self>, last: bool) -> Answer {
        self.left.set(self.left.get() + usize::from(!last));
        let mut parts = self.parts.borrow_mut();
        parts.push(Payload::default());
        Answer::Piece(Rc::clone(self), parts.len() - 1)
    }

    /// Whether one answer is missing that will complete the request.
    fn is_last(&self) -> bool {
        self.left.get() == 1
    }

    fn complete(&self, index: usize, result: IoResult) {
        match result {
            Ok(payload) => self.parts.borrow_mut()[index] = payload,
            Err(error) => {
                let mut first = self.error.borrow_mut();
                if first.as_ref().is_none_or(|(other, _)| index < *other) {
                    *first = Some((index, error));
                }
            }
        }
        self.left.set(self.left.get() - 1);
        if self.left.get() == 0
            && let Some(completer) = self.completer.take()
        {
            completer.complete(self.result());
        }
    }

    fn result(&self) -> IoResult {
        if let Some((_, error)) = self.error.take() {
            return Err(error);
        }
        let mut whole = Payload::default();
        self.parts.take().into_iter().for_each(|part| whole.append(part));
        Ok(whole)
    }
}

impl Answer {
    /// Whether [`Answer::complete`] will answer the request as a whole.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Piece(pieces, _) => pieces.is_last(),
        }
    }

    pub(crate) fn complete(self, result: IoResult) {
        match self {
            Self::Whole(completer) => completer.complete(result),
            Self::Piece(pieces, index) => pieces.complete(index, result),
        }
    }
}
