//! Carries messages from other threads to the thread of a runtime.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Takes messages from any thread. Clones lead to the same [`Inbox`].
#[derive(Debug)]
pub struct Mailbox<T>(Arc<Shared<T>>);

/// The receiving end of a [`Mailbox`]. When it is dropped, messages not yet taken are dropped, and
/// so are later ones.
#[derive(Debug)]
pub struct Inbox<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T>(Mutex<Queue<T>>);

#[derive(Debug)]
struct Queue<T> {
    messages: VecDeque<T>,
    /// The receiver, while it waits for a message.
    receiver: Option<Waker>,
    /// No more messages come.
    closed: bool,
    /// Nobody takes messages any more.
    gone: bool,
}

/// A mailbox and its receiving end.
#[must_use]
pub fn mailbox<T>() -> (Mailbox<T>, Inbox<T>) {
    let queue = Queue { messages: VecDeque::new(), receiver: None, closed: false, gone: false };
    let shared = Arc::new(Shared(Mutex::new(queue)));
    (Mailbox(Arc::clone(&shared)), Inbox(shared))
}

impl<T> Shared<T> {
    fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        // No code that may panic runs under the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mailbox<T> {
    /// Hands a message over. If the inbox has been dropped, the message is dropped here.
    pub fn push(&self, message: T) {
        let mut queue = self.0.queue();
        if queue.gone {
            // Outside of the lock, because dropping a message may answer it.
            drop(queue);
            drop(message);
            return;
        }
        queue.messages.push_back(message);
        let receiver = queue.receiver.take();
        drop(queue);
        receiver.into_iter().for_each(Waker::wake);
    }

    /// Tells the receiver that no more messages come; it still takes those that have come.
    pub fn close(&self) {
        let mut queue = self.0.queue();
        queue.closed = true;
        let receiver = queue.receiver.take();
        drop(queue);
        receiver.into_iter().for_each(Waker::wake);
    }
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Inbox<T> {
    /// The messages that have come; waits for one if there is none. Empty once the mailbox is
    /// closed.
    pub async fn take(&self) -> VecDeque<T> {
        poll_fn(|cx| {
            let mut queue = self.0.queue();
            if queue.messages.is_empty() && !queue.closed {
                queue.receiver = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut queue.messages))
        })
        .await
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let messages = {
            let mut queue = self.0.queue();
            queue.gone = true;
            std::mem::take(&mut queue.messages)
        };
        // Outside of the lock, as in `push`.
        drop(messages);
    }
}
