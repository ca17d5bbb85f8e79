//! An even, bounded and repeatable sample of a long stream.

/// Every n-th item of a stream, with n doubling so that no more than a fixed number is kept.
#[derive(Clone, Debug)]
pub struct Thinned<T> {
    kept: Vec<T>,
    limit: usize,
    stride: u64,
    until_next: u64,
}

impl<T> Thinned<T> {
    /// A sample of at most `limit` items (at least two).
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { kept: Vec::new(), limit: limit.max(2), stride: 1, until_next: 0 }
    }

    /// Offers the stream's next item.
    pub fn push(&mut self, item: T) {
        self.push_with(|| item);
    }

    /// Offers the stream's next item, which is made only if it is kept.
    pub fn push_with(&mut self, item: impl FnOnce() -> T) {
        if self.until_next > 0 {
            self.until_next -= 1;
            return;
        }
        if self.kept.len() == self.limit {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.stride *= 2;
        }
        self.kept.push(item());
        self.until_next = self.stride - 1;
    }

    /// The sample in the order of the stream.
    #[must_use]
    pub fn items(&self) -> &[T] {
        &self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_bounded_and_spread_over_the_stream() {
        let mut sample = Thinned::new(100);
        (0..12_345).for_each(|i| sample.push(i));
        let items = sample.items();
        assert!((50..=100).contains(&items.len()));
        assert!(items[0] == 0 && *items.last().unwrap() > 12_000 && items.is_sorted());
    }

    #[test]
    fn a_short_stream_is_kept_whole() {
        let mut sample = Thinned::new(100);
        (0..100).for_each(|i| sample.push(i));
        assert_eq!(sample.items().len(), 100);
    }
}
