//! The host's page cache, file by file: the files read or written last are in memory.

use std::collections::{HashMap, VecDeque};

use manylogs_ext4::Ino;

/// Files whose content is in memory.
#[derive(Debug)]
pub(super) struct PageCache {
    bound_bytes: u64,
    bytes: u64,
    files: HashMap<Ino, u64>,
    /// Files in the order of their arrival; removed files are skipped.
    order: VecDeque<Ino>,
}

impl PageCache {
    pub(super) fn new(bound_bytes: u64) -> Self {
        Self { bound_bytes, bytes: 0, files: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn has(&self, file: Ino) -> bool {
        self.files.contains_key(&file)
    }

    /// Notes that the whole file is in memory now, and has this length.
    pub(super) fn put(&mut self, file: Ino, bytes: u64) {
        let before = self.files.insert(file, bytes);
        if before.is_none() {
            self.order.push_back(file);
        }
        self.bytes = self.bytes - before.unwrap_or(0) + bytes;
        while self.bytes > self.bound_bytes
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.files.remove(&oldest).unwrap_or(0);
        }
    }

    /// Removes a deleted file.
    pub(super) fn forget(&mut self, file: Ino) {
        self.bytes -= self.files.remove(&file).unwrap_or(0);
        self.order.retain(|other| *other != file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_files_leave_first() {
        let mut cache = PageCache::new(100);
        let file = Ino;
        for n in 1..=3 {
            cache.put(file(n), 40);
        }
        assert_eq!([1, 2, 3].map(|n| cache.has(file(n))), [false, true, true]);
        cache.put(file(2), 60);
        assert!(cache.has(file(3)) && cache.bytes == 100);
        cache.forget(file(3));
        assert_eq!(cache.bytes, 60);
        cache.put(file(4), 90);
        assert_eq!([2, 3, 4].map(|n| cache.has(file(n))), [false, false, true]);
    }
}
