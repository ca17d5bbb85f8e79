//! The requests that are not answered yet.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use manylogs_block::{Signal, Time};

/// Requests under way, in the order in which they began.
#[derive(Debug, Default)]
pub struct UnderWay {
    began: RefCell<BTreeMap<u64, Time>>,
    entered: Cell<u64>,
    ended: Signal,
}

/// One request; dropped when it is answered.
#[derive(Debug)]
pub struct Token {
    all: Rc<UnderWay>,
    number: u64,
}

impl UnderWay {
    /// Adds a request that begins now; it ends when the token is dropped.
    #[must_use]
    pub fn enter(self: &Rc<Self>, now: Time) -> Token {
        let number = self.entered.get();
        self.entered.set(number + 1);
        self.began.borrow_mut().insert(number, now);
        Token { all: Rc::clone(self), number }
    }

    /// Number of requests under way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.began.borrow().len()
    }

    /// Whether no request is under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.began.borrow().is_empty()
    }

    /// When the oldest request began.
    #[must_use]
    pub fn oldest(&self) -> Option<Time> {
        self.began.borrow().first_key_value().map(|(_, began)| *began)
    }

    /// Waits until no request is under way.
    pub async fn none(&self) {
        loop {
            let ended = self.ended.wait();
            if self.is_empty() {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.all.began.borrow_mut().remove(&self.number);
        self.all.ended.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_the_one_that_began_first_of_those_that_are_left() {
        let all = Rc::<UnderWay>::default();
        let tokens: Vec<Token> = (5..8).map(|now| all.enter(Time(now))).collect();
        assert_eq!((all.len(), all.oldest()), (3, Some(Time(5))));
        let mut tokens = tokens.into_iter();
        drop(tokens.next());
        assert_eq!((all.len(), all.oldest()), (2, Some(Time(6))));
        drop(tokens);
        assert_eq!((all.len(), all.oldest()), (0, None));
    }
}
