//! The answer to a submitted request, whether the submitter awaits it or not.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{IoError, Payload};

/// What a request ends with: the content for a read, an empty payload for other requests.
pub type IoResult<T = Payload> = Result<T, IoError>;

struct Slot<T> {
    result: RefCell<Option<IoResult<T>>>,
    waker: Cell<Option<Waker>>,
    watcher: Cell<Option<(Rc<dyn Watcher>, u64)>>,
}

/// Is told when requests are answered: see [`Completion::watched`].
pub trait Watcher {
    /// The request that the watcher calls `number` is answered. The device may be in the middle of
    /// its work: nothing may be submitted here.
    fn answered(&self, number: u64);
}

/// Resolves when the device has answered. Dropping it abandons the answer, never the I/O.
#[must_use = "an unawaited completion hides errors"]
pub struct Completion<T = Payload> {
    inner: Inner<T>,
    /// Kept until the answer is taken or abandoned: the token counts requests under way.
    held: Option<Rc<()>>,
}

enum Inner<T> {
    Ready(Option<IoResult<T>>),
    Pending(Rc<Slot<T>>),
    /// The answer is composed of other answers while the caller awaits it.
    Composed(Pin<Box<dyn Future<Output = IoResult<T>>>>),
}

/// The device's end of a [`Completion`].
pub struct Completer<T = Payload>(Rc<Slot<T>>);

/// A completion and the end that resolves it.
pub fn completion<T>() -> (Completer<T>, Completion<T>) {
    let (result, waker, watcher) = (RefCell::default(), Cell::default(), Cell::default());
    let slot = Rc::new(Slot { result, waker, watcher });
    (Completer(Rc::clone(&slot)), Completion { inner: Inner::Pending(slot), held: None })
}

impl<T> Completion<T> {
    /// An answer that is known already.
    pub const fn ready(result: IoResult<T>) -> Self {
        Self { inner: Inner::Ready(Some(result)), held: None }
    }

    /// An answer that is composed of others. The requests behind it have been submitted already;
    /// the code in `answers` runs only if the caller awaits the completion.
    pub fn of_others(answers: impl Future<Output = IoResult<T>> + 'static) -> Self {
        Self { inner: Inner::Composed(Box::pin(answers)), held: None }
    }

    /// Tells `watcher` once that the answer is there, before anybody else hears of it, and whether
    /// somebody awaits it or not. That takes no task and no memory of its own.
    ///
    /// # Errors
    /// The completion, and nobody will be told: it has a watcher already, or its answer is composed
    /// of others only while somebody awaits it.
    pub fn watched<W: Watcher + 'static>(self, watcher: &Rc<W>, number: u64) -> Result<Self, Self> {
        match &self.inner {
            Inner::Ready(_) => watcher.answered(number),
            Inner::Composed(_) => return Err(self),
            Inner::Pending(slot) if slot.result.borrow().is_some() => watcher.answered(number),
            Inner::Pending(slot) => {
                if let Some(first) = slot.watcher.take() {
                    slot.watcher.set(Some(first));
                    return Err(self);
                }
                slot.watcher.set(Some((Rc::clone(watcher) as Rc<dyn Watcher>, number)));
            }
        }
        Ok(self)
    }

    /// Keeps `token` alive as long as somebody may still wait for the answer. The token's reference
    /// count then tells how many requests are under way.
    pub fn holding(self, token: Rc<()>) -> Self {
        Self { held: Some(token), ..self }
    }
}

/// Waits for all of `requests`.
///
/// # Errors
/// The first error, once all requests have ended. A caller that stopped at the first error would
/// leave writes under way, which may overwrite later writes to the same place.
pub async fn all_done(requests: impl IntoIterator<Item = Completion>) -> Result<(), IoError> {
    let mut result = Ok(());
    for request in requests {
        result = result.and(request.await.map(drop));
    }
    result
}

impl<T> Completer<T> {
    /// Hands over the answer and wakes the task that waits for it.
    pub fn complete(self, result: IoResult<T>) {
        *self.0.result.borrow_mut() = Some(result);
        if let Some((watcher, number)) = self.0.watcher.take() {
            watcher.answered(number);
        }
        if let Some(waker) = self.0.waker.take() {
            waker.wake();
        }
    }
}

/// No pointer leads into a completion.
impl<T> Unpin for Completion<T> {}

impl<T> Future for Completion<T> {
    type Output = IoResult<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<IoResult<T>> {
        let this = &mut *self;
        match &mut this.inner {
            Inner::Ready(result) => {
                result.take().map_or_else(|| panic!("completion polled after its end"), Poll::Ready)
            }
            Inner::Composed(answers) => {
                let result = std::task::ready!(answers.as_mut().poll(cx));
                this.held = None;
                Poll::Ready(result)
            }
            Inner::Pending(slot) => {
                if let Some(result) = slot.result.borrow_mut().take() {
                    this.held = None;
                    return Poll::Ready(result);
                }
                slot.waker.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> std::fmt::Debug for Completion<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion").finish_non_exhaustive()
    }
}

impl<T> std::fmt::Debug for Completer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(RefCell<Vec<u64>>);

    impl Watcher for Told {
        fn answered(&self, number: u64) {
            self.0.borrow_mut().push(number);
        }
    }

    #[test]
    fn a_watcher_is_told_once_of_each_answer_that_comes_by_itself() {
        let told = Rc::new(Told::default());
        let (completer, answer) = completion::<u32>();
        let answer = answer.watched(&told, 1).ok();
        assert!(told.0.borrow().is_empty(), "it is not there yet");
        let refused = answer.map(|answer| answer.watched(&told, 2));
        assert!(matches!(refused, Some(Err(_))), "there is a watcher already");
        // Nobody awaits it.
        drop(refused);
        completer.complete(Ok(7));
        assert_eq!(*told.0.borrow(), [1]);
        let ready = Completion::<u32>::ready(Err(IoError::Gone)).watched(&told, 3);
        assert!(ready.is_ok() && *told.0.borrow() == [1, 3]);
        let (completer, answer) = completion::<u32>();
        completer.complete(Ok(7));
        assert!(answer.watched(&told, 4).is_ok() && *told.0.borrow() == [1, 3, 4]);
        let composed = Completion::of_others(async { Ok(7_u32) });
        assert!(composed.watched(&told, 5).is_err() && *told.0.borrow() == [1, 3, 4]);
    }
}
