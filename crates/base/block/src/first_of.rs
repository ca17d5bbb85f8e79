//! Waiting for one thing or another.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::runtime::Handle;
use crate::units::Nanos;

/// Returns the result of the future that ends first and drops the other; if both are ready,
/// `one`'s.
pub async fn first_of<T>(one: impl Future<Output = T>, other: impl Future<Output = T>) -> T {
    let (mut one, mut other) = (pin!(one), pin!(other));
    poll_fn(|cx| match one.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(result),
        Poll::Pending => other.as_mut().poll(cx),
    })
    .await
}

impl Handle {
    /// The result of `work`; `None` if it takes longer than `span`.
    pub async fn within<T>(&self, span: Nanos, work: impl Future<Output = T>) -> Option<T> {
        let over = self.sleep(span);
        let late = async {
            over.await;
            None
        };
        first_of(async { Some(work.await) }, late).await
    }
}
