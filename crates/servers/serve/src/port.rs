//! The queue of requests from the threads of front ends to the engine's thread, and of answers
//! back.

use manylogs_block::{Extent, Extents, IoError, IoResult, Mailbox, Payload, Request, mailbox};
use manylogs_operate::control::{Answer, Order, OrderError};

/// Takes requests from any thread. Clones lead to the same engine.
#[derive(Clone, Debug)]
pub struct Port(Mailbox<Message>);

/// The engine's end of a [`Port`].
pub(crate) type Inbox = manylogs_block::Inbox<Message>;

/// A message to the engine.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request of a client.
    Io(Request, Reply),
    /// A question about an extent's content, answered without reading it: see [`Port::extents`].
    Extents(Extent, ExtentsReply),
    /// A request of the operator.
    Order(Order, OrderReply),
    /// Finish what is under way and close the volume.
    Stop,
}

/// Answers a request, exactly once: if it is dropped without an answer, because the engine is gone,
/// the client gets that error.
pub(crate) struct ReplyTo<T: Lost>(Option<Box<dyn FnOnce(T) + Send>>);

/// Answers a request of a client.
pub(crate) type Reply = ReplyTo<IoResult>;
/// Answers a question about extents.
pub(crate) type ExtentsReply = ReplyTo<IoResult<Extents>>;
/// Answers a request of the operator.
pub(crate) type OrderReply = ReplyTo<Answer>;

/// An answer type that can also say that the engine is gone.
pub(crate) trait Lost {
    /// The answer when the engine is gone.
    fn lost() -> Self;
}

impl<T> Lost for Result<T, IoError> {
    fn lost() -> Self {
        Err(IoError::Gone)
    }
}

impl Lost for Answer {
    fn lost() -> Self {
        Err(OrderError::new("the server is stopping"))
    }
}

impl<T: Lost> ReplyTo<T> {
    pub(crate) fn new(reply: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Some(Box::new(reply)))
    }

    pub(crate) fn send(mut self, answer: T) {
        if let Some(reply) = self.0.take() {
            reply(answer);
        }
    }
}

impl<T: Lost> Drop for ReplyTo<T> {
    fn drop(&mut self) {
        if let Some(reply) = self.0.take() {
            reply(T::lost());
        }
    }
}

impl<T: Lost> std::fmt::Debug for ReplyTo<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplyTo")
    }
}

/// A port and the engine's end of it.
pub(crate) fn port() -> (Port, Inbox) {
    let (mailbox, inbox) = mailbox();
    (Port(mailbox), inbox)
}

impl Port {
    /// Hands `request` to the engine. `reply` runs on the engine's thread, and must not block; if
    /// the engine is gone, or ends before it has answered, `reply` gets [`IoError::Gone`].
    pub fn submit(&self, request: Request, reply: impl FnOnce(IoResult) + Send + 'static) {
        self.0.push(Message::Io(request, ReplyTo::new(reply)));
    }

    /// Hands `request` to the engine and blocks until it is answered.
    ///
    /// # Errors
    /// Those of the request.
    pub fn call(&self, request: Request) -> IoResult {
        self.ask(|reply| Message::Io(request, reply))
    }

    /// Asks for the kinds of extents in `within`, or in its beginning, without reading it: see
    /// [`manylogs_block::BlockDevice::extents`]. Blocks until answered.
    ///
    /// # Errors
    /// Those of the device, and [`IoError::Gone`] if the engine is gone.
    pub fn extents(&self, within: Extent) -> IoResult<Extents> {
        self.ask(|reply| Message::Extents(within, reply))
    }

    /// Like [`Port::extents`], without blocking: `reply` runs on the engine's thread.
    pub fn extents_then(
        &self,
        within: Extent,
        reply: impl FnOnce(IoResult<Extents>) + Send + 'static,
    ) {
        self.0.push(Message::Extents(within, ReplyTo::new(reply)));
    }

    /// Sends an operator's order and blocks until it is answered.
    ///
    /// # Errors
    /// Why the order was not carried out.
    pub fn order(&self, order: Order) -> Answer {
        self.ask(|reply| Message::Order(order, reply))
    }

    /// Hands a message to the engine and blocks until it is answered.
    fn ask<T: Lost + Send + 'static>(&self, message: impl FnOnce(ReplyTo<T>) -> Message) -> T {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let reply = ReplyTo::new(move |answer| {
            let _ = sender.send(answer);
        });
        self.0.push(message(reply));
        receiver.recv().unwrap_or_else(|_| T::lost())
    }

    /// Tells the engine to finish what is under way and to close.
    pub fn stop(&self) {
        self.0.push(Message::Stop);
    }
}

/// The bytes of an answer; an answer without content has none.
#[must_use]
pub fn content(payload: &Payload) -> bytes::Bytes {
    payload.to_bytes().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_an_engine_that_is_gone_hears_of_it() {
        let (port, inbox) = port();
        let (sender, receiver) = std::sync::mpsc::channel();
        port.submit(Request::Flush, move |result| sender.send(result).unwrap());
        drop(inbox);
        assert_eq!(receiver.recv().unwrap(), Err(IoError::Gone));
        assert_eq!(port.call(Request::Flush), Err(IoError::Gone));
        assert_eq!(port.extents(Extent::new(0, 8)), Err(IoError::Gone));
    }
}
