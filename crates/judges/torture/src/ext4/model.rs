//! The promises to one client: its names at every point since the last durable one, and the
//! contents that each file may have.

use std::collections::BTreeMap;

use manylogs_ext4::Ino;

/// Names found in a directory, each with its inode.
pub(crate) type Found = BTreeMap<Vec<u8>, Ino>;
/// Names that the client gave, each with its inode and the id of the file.
pub(crate) type Names = BTreeMap<Vec<u8>, (Ino, Option<FileId>)>;

/// Distinguishes files that have the same inode number one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FileId(pub(crate) u64);

/// A file's contents since it was last synced, oldest first. The first is the one that is promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) contents: Vec<Vec<u8>>,
    /// Number of older contents that were dropped.
    forgotten: usize,
}

/// A promise of content together with names: if a crash shows the names of this state or a later
/// one, it must show this content of the file or a newer one.
#[derive(Clone, Copy, Debug)]
struct Floor {
    /// The number of the state, dropped ones included.
    state: usize,
    file: FileId,
    /// The number of the content, dropped ones included.
    version: usize,
}

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    /// The client's directory, once it is durable.
    pub(crate) dir: Option<Ino>,
    /// The names after each operation since the last durable state.
    pub(crate) states: Vec<Names>,
    /// Number of older states that were dropped.
    pub(crate) forgotten: usize,
    /// A name that a new inode is about to get.
    pub(crate) coming: Option<Vec<u8>>,
    /// The state in which each inode last got or lost a name, dropped ones included.
    pub(crate) named: BTreeMap<Ino, usize>,
    pub(crate) files: BTreeMap<FileId, History>,
    floors: Vec<Floor>,
    /// Grows whenever a promise changes.
    pub(crate) moment: u64,
}

impl History {
    pub(crate) fn of(contents: Vec<Vec<u8>>) -> Self {
        Self { contents, forgotten: 0 }
    }

    pub(crate) fn now(&self) -> &[u8] {
        self.contents.last().map_or(&[], Vec::as_slice)
    }

    /// Checks a file's content. Each page must be one that the file had, or zeroes behind its end
    /// at the time. The size must be one that it had, or lie between two.
    pub(crate) fn check(&self, found: &[u8]) -> Result<(), String> {
        self.check_from(0, found)
    }

    /// As [`History::check`], for the contents from `version` on, dropped ones included.
    fn check_from(&self, version: usize, found: &[u8]) -> Result<(), String> {
        let last = self.contents.len().saturating_sub(1);
        let contents = &self.contents[version.saturating_sub(self.forgotten).min(last)..];
        let least = contents.iter().map(Vec::len).min().unwrap_or(0);
        let most = contents.iter().map(Vec::len).max().unwrap_or(0);
        if !(least..=most).contains(&found.len()) {
            return Err(format!("{} bytes, not {least} to {most}", found.len()));
        }
        for (number, page) in found.chunks(4096).enumerate() {
            let is_version = |content: &Vec<u8>| {
                let known = content.get(number * 4096..).unwrap_or(&[]);
                let (same, rest) = page.split_at(known.len().min(page.len()));
                known.starts_with(same) && rest.iter().all(|byte| *byte == 0)
            };
            if !contents.iter().any(is_version) {
                return Err(format!("page {number} holds what was never there"));
            }
        }
        Ok(())
    }
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            dir: None,
            states: vec![Names::new()],
            forgotten: 0,
            coming: None,
            named: BTreeMap::new(),
            files: BTreeMap::new(),
            floors: Vec::new(),
            moment: 0,
        }
    }

    pub(crate) fn now(&self) -> &Names {
        &self.states[self.states.len() - 1]
    }

    /// Adds a state in which `inos` have got or lost names.
    pub(crate) fn rename(&mut self, inos: &[Ino], change: impl FnOnce(&mut Names)) {
        let mut names = self.now().clone();
        change(&mut names);
        self.states.push(names);
        let last = self.last();
        self.named.extend(inos.iter().map(|ino| (*ino, last)));
    }

    /// The number of the newest state, dropped ones included.
    pub(crate) fn last(&self) -> usize {
        self.forgotten + self.states.len() - 1
    }

    /// Drops the newest state, because the operation did not happen.
    pub(crate) fn undo(&mut self) {
        self.states.pop();
    }

    /// Promises that the file's content is durable no later than the present names, or, if `later`,
    /// than the next ones.
    pub(crate) fn promise(&mut self, file: FileId, later: bool) {
        let Some(history) = self.files.get(&file) else { return };
        let version = history.forgotten + history.contents.len().saturating_sub(1);
        let state = self.last() + usize::from(later);
        self.floors.push(Floor { state, file, version });
    }

    /// Withdraws the last promise.
    pub(crate) fn take_back(&mut self) {
        self.floors.pop();
    }

    /// Records that the names of state `number` are durable.
    pub(crate) fn names_durable(&mut self, number: usize) {
        let old = number.saturating_sub(self.forgotten).min(self.states.len() - 1);
        self.states.drain(..old);
        self.forgotten += old;
    }

    /// Records that a file's content at `point` is durable.
    pub(crate) fn content_durable(&mut self, file: FileId, point: usize) {
        if let Some(history) = self.files.get_mut(&file) {
            let old = point.min(history.contents.len().saturating_sub(1));
            history.contents.drain(..old);
            history.forgotten += old;
        }
    }

    /// Checks that the names and contents are those promised, or newer ones. Returns the state that
    /// they belong to.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(
        &self,
        names: &Found,
        contents: &BTreeMap<Ino, Vec<u8>>,
    ) -> Result<&Names, String> {
        let mut known = names.clone();
        if let Some(coming) = &self.coming {
            known.remove(coming);
        }
        let mut wrong = format!(
            "names that never were there together: {} found, {} promised, {} now",
            names.len(),
            self.states[0].len(),
            self.now().len()
        );
        for (number, state) in (self.forgotten..).zip(&self.states) {
            if state.len() != known.len()
                || !state.iter().all(|(n, (i, _))| known.get(n) == Some(i))
            {
                continue;
            }
            match self.check_contents((number, state), contents) {
                Ok(()) => return Ok(state),
                Err(problem) => wrong = problem,
            }
        }
        Err(wrong)
    }

    /// Goes on from what was found after a crash: it is durable from now on.
    ///
    /// # Errors
    /// If it differs from what was promised.
    pub(crate) fn adopt(
        &mut self,
        names: &Found,
        contents: &BTreeMap<Ino, Vec<u8>>,
        fresh: FileId,
    ) -> Result<(), String> {
        let mut state = self.check(names, contents)?.clone();
        if let Some(coming) = self.coming.take()
            && let Some(ino) = names.get(&coming)
        {
            state.insert(coming, (*ino, contents.contains_key(ino).then_some(fresh)));
        }
        let files = state.values().filter_map(|(ino, id)| {
            let history = History::of(vec![contents.get(ino)?.clone()]);
            Some(((*id)?, history))
        });
        self.files = files.collect();
        self.floors.clear();
        (self.states, self.forgotten, self.named) = (vec![state], 0, BTreeMap::new());
        Ok(())
    }

    fn check_contents(
        &self,
        (number, state): (usize, &Names),
        contents: &BTreeMap<Ino, Vec<u8>>,
    ) -> Result<(), String> {
        let mut least: BTreeMap<FileId, usize> = BTreeMap::new();
        for floor in self.floors.iter().filter(|floor| floor.state <= number) {
            let version = least.entry(floor.file).or_default();
            *version = floor.version.max(*version);
        }
        for (name, (ino, id)) in state {
            let Some(content) = contents.get(ino) else { continue };
            let known = id.and_then(|id| Some((id, self.files.get(&id)?)));
            let (id, history) = known.ok_or("a file of nobody")?;
            let name = String::from_utf8_lossy(name);
            let checked = history.check_from(least.get(&id).copied().unwrap_or(0), content);
            checked.map_err(|wrong| format!("{name}, {ino}: {wrong}"))?;
        }
        Ok(())
    }
}
