//! The timers of an executor.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::Time;

/// Timers in order of their deadlines; those with equal deadlines in the order they were set.
#[derive(Default)]
pub(crate) struct Timers {
    /// The earliest timer, if it was the earliest when it was set: a timer for the next event then
    /// needs no place in the heap.
    first: Option<Timer>,
    /// All others, which come later.
    others: BinaryHeap<Reverse<Timer>>,
    set: u64,
}

struct Timer {
    deadline: Time,
    order: u64,
    waker: Waker,
}

impl Timers {
    /// Number of timers.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// The earliest deadline.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let next = self.first.as_ref().or_else(|| self.others.peek().map(|Reverse(timer)| timer));
        next.map(|timer| timer.deadline)
    }

    /// Sets a timer.
    #[inline]
    pub(crate) fn push(&mut self, deadline: Time, waker: Waker) {
        let timer = Timer { deadline, order: self.set, waker };
        self.set += 1;
        if self.next_deadline().is_some_and(|next| next <= deadline) {
            self.others.push(Reverse(timer));
        } else if let Some(later) = self.first.replace(timer) {
            self.others.push(Reverse(later));
        }
    }

    /// Removes the earliest timer: returns its deadline and its waker.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(Time, Waker)> {
        let next = self.first.take().or_else(|| self.others.pop().map(|Reverse(timer)| timer));
        next.map(|timer| (timer.deadline, timer.waker))
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Timer {}

impl PartialOrd for Timer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timer {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.deadline, self.order).cmp(&(other.deadline, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn timers_come_by_deadline_then_in_the_order_in_which_they_were_set() {
        let (mut rng, mut timers) = (Rng::new(7), Timers::default());
        let mut model: Vec<(Time, u64)> = Vec::new();
        for order in 0..20_000 {
            if rng.below(2) == 0 {
                let deadline = Time(rng.below(50));
                timers.push(deadline, Waker::noop().clone());
                model.push((deadline, order));
                model.sort_unstable();
            } else {
                let expected = (!model.is_empty()).then(|| model.remove(0).0);
                assert_eq!(timers.next_deadline(), expected);
                assert_eq!(timers.pop().map(|(deadline, _)| deadline), expected);
            }
            assert_eq!(timers.len(), model.len());
        }
    }

    #[test]
    fn timers_of_one_deadline_wake_in_order() {
        use std::sync::{Arc, Mutex};
        struct Noted(u32, Arc<Mutex<Vec<u32>>>);
        impl std::task::Wake for Noted {
            fn wake(self: Arc<Self>) {
                self.1.lock().unwrap().push(self.0);
            }
        }
        let (woken, mut timers) = (Arc::<Mutex<Vec<u32>>>::default(), Timers::default());
        for (number, deadline) in [(2, 5), (0, 1), (1, 1), (3, 5), (4, 5)] {
            timers.push(Time(deadline), Arc::new(Noted(number, Arc::clone(&woken))).into());
        }
        while let Some((_, waker)) = timers.pop() {
            waker.wake();
        }
        assert_eq!(*woken.lock().unwrap(), [0, 1, 2, 3, 4]);
    }
}
