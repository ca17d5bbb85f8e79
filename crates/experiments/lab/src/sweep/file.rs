//! The file that describes a sweep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manylogs_block::{Nanos, Time, parse_share, parse_span};
use manylogs_workload::transform::Window;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::load::{LoadRate, LoadSpec};
use crate::prepare::WindowChoice;
use crate::replay::{Durability, NamedPolicy, PolicyListError, parse_policies};

/// Description of a sweep, as its file gives it. Unknown keys are refused by name.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Sweep {
    /// Traces; a nested list is a mix of tenants. Paths are relative to the file's directory.
    pub traces: Vec<TraceList>,
    /// Drives by name or profile file.
    pub drives: Vec<String>,
    /// Arrays of such drives, in the form of `replay --array`; each drive is run on each of them.
    /// Single drives if there are none.
    #[serde(default)]
    pub arrays: Vec<String>,
    /// Policies in the form of `replay --policy`, one in each item.
    pub policies: Vec<String>,
    /// Values of policies' parameters: each combination is added to each policy that is not the
    /// plain drive.
    #[serde(default)]
    pub parameters: BTreeMap<String, Vec<String>>,
    /// Number of seeds, or a list of seeds.
    #[serde(default)]
    pub seeds: Seeds,
    /// Factor by which arrivals are faster than recorded, or `auto`.
    #[serde(default)]
    pub rate: Rate,
    /// With `auto`: wanted utilisation of the plain drive, as 0.5 or "50%".
    #[serde(default)]
    pub utilisation: Option<String>,
    /// `recorded`, `all` or `sync-every=5s`; if not given, the default of `replay`.
    #[serde(default)]
    pub durability: Option<String>,
    /// The part of each trace, in the form of `replay --window`.
    #[serde(default)]
    pub window: Option<WindowText>,
    /// The most requests of each trace.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Whether addresses beyond the drive are moved into it.
    #[serde(default)]
    pub fit: bool,
    /// Output files.
    #[serde(default)]
    pub output: Output,
}

/// One trace, or several that share the drive.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum TraceList {
    /// A single trace.
    One(PathBuf),
    /// A mix of traces, each in its own slice of the drive.
    Mix(Vec<PathBuf>),
}

/// Seeds of a sweep.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Seeds {
    /// This number of seeds, counted from 1.
    Count(u64),
    /// A list of seeds.
    List(Vec<u64>),
}

/// Rate of a sweep.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(untagged)]
pub enum Rate {
    /// Factor by which arrivals are faster than recorded.
    Factor(f64),
    /// The word `auto`.
    Word(String),
}

/// A window in words: `1h+5m`, `busiest-writes:5m`, `busiest-reads:5m`, `random:5m`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct WindowText(pub String);

/// Output files.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Output {
    /// A CSV file with one row a run.
    #[serde(default)]
    pub csv: Option<PathBuf>,
    /// A Parquet file with one row a run.
    #[serde(default)]
    pub parquet: Option<PathBuf>,
    /// A directory for Parquet files with one row a request, one file a run.
    #[serde(default)]
    pub requests: Option<PathBuf>,
}

/// The reason why a sweep's file was refused.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SweepError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a valid description of a sweep.
    #[error("{}: {reason}", path.display())]
    Bad {
        /// The file.
        path: PathBuf,
        /// Line, column and reason.
        reason: String,
    },
}

impl Default for Seeds {
    fn default() -> Self {
        Self::Count(3)
    }
}

impl Default for Rate {
    fn default() -> Self {
        Self::Factor(1.0)
    }
}

impl Seeds {
    /// All seeds.
    #[must_use]
    pub fn list(&self) -> Vec<u64> {
        match self {
            Self::Count(count) => (1..=*count).collect(),
            Self::List(list) => list.clone(),
        }
    }
}

impl TraceList {
    /// The trace files.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        match self {
            Self::One(file) => std::slice::from_ref(file),
            Self::Mix(files) => files,
        }
    }

    /// The traces as a table shows them: the last `parts` parts of their paths.
    #[must_use]
    pub fn name(&self, parts: usize) -> String {
        let name = |file: &PathBuf| {
            let all = file.iter().count();
            file.iter().skip(all.saturating_sub(parts)).collect::<PathBuf>().display().to_string()
        };
        self.files().iter().map(name).collect::<Vec<_>>().join(" + ")
    }
}

impl WindowText {
    /// The parsed window; `None` if the text is not a window.
    #[must_use]
    pub fn choice(&self) -> Option<WindowChoice> {
        if let Some((start, len)) = self.0.split_once('+') {
            let (start, len) = (Time(parse_span(start)?.0), parse_span(len)?);
            return Some(WindowChoice::At(Window { start, len }));
        }
        let (kind, len) = self.0.split_once(':').unwrap_or((&self.0, "5m"));
        let len = parse_span(len).filter(|len| *len > Nanos(0))?;
        match kind {
            "busiest-reads" => Some(WindowChoice::BusiestReads(len)),
            "busiest-writes" => Some(WindowChoice::BusiestWrites(len)),
            "random" => Some(WindowChoice::Random(len)),
            _ => None,
        }
    }
}

impl Sweep {
    /// Reads the file; relative paths become relative to its directory.
    ///
    /// # Errors
    /// If it cannot be read, has an unknown key, or a value makes no sense.
    pub fn load(path: &Path) -> Result<Self, SweepError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SweepError::Read { path: path.to_owned(), source })?;
        let dir = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, dir).map_err(|reason| SweepError::Bad { path: path.to_owned(), reason })
    }

    /// Reads the text of such a file; relative paths become relative to `dir`.
    ///
    /// # Errors
    /// If it has an unknown key, or a value makes no sense.
    pub fn parse(text: &str, dir: &Path) -> Result<Self, String> {
        let mut sweep: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        sweep.resolve(dir);
        sweep.check()?;
        Ok(sweep)
    }

    fn resolve(&mut self, dir: &Path) {
        let there = |path: &mut PathBuf| {
            if !crate::prepare::is_generated(path) {
                *path = dir.join(&path);
            }
        };
        for list in &mut self.traces {
            match list {
                TraceList::One(file) => there(file),
                TraceList::Mix(files) => files.iter_mut().for_each(there),
            }
        }
        let Output { csv, parquet, requests } = &mut self.output;
        [csv, parquet, requests].into_iter().flatten().for_each(there);
    }

    fn check(&self) -> Result<(), String> {
        let lists = [("traces", self.traces.len()), ("drives", self.drives.len())];
        let lists = lists
            .into_iter()
            .chain([("policies", self.policies.len()), ("seeds", self.seeds.list().len())]);
        if let Some((key, _)) = lists.into_iter().find(|(_, len)| *len == 0) {
            return Err(format!("`{key}` is empty"));
        }
        if let Some((key, _)) = self.parameters.iter().find(|(_, values)| values.is_empty()) {
            return Err(format!("`parameters.{key}` is empty"));
        }
        match &self.rate {
            Rate::Factor(factor) if !(1e-6..=1e6).contains(factor) => {
                return Err(format!("rate = {factor}: expected 0.000001 to 1000000, or \"auto\""));
            }
            Rate::Word(word) if word != "auto" => {
                return Err(format!("rate = {word:?}: expected a number, or \"auto\""));
            }
            _ => {}
        }
        if self.window.as_ref().is_some_and(|window| window.choice().is_none()) {
            return Err("window: expected START+LENGTH as 1h+5m, busiest-reads:LENGTH, \
                        busiest-writes:LENGTH or random:LENGTH"
                .to_owned());
        }
        self.durability()?;
        self.target()?;
        self.names()?;
        self.grid().map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Names of the traces in tables: file names, with as many directories as needed to tell traces
    /// of one name apart.
    fn names(&self) -> Result<Vec<String>, String> {
        let longest = self.traces.iter().flat_map(TraceList::files).map(|file| file.iter().count());
        let longest = longest.max().unwrap_or(1).max(1);
        let name = |at: usize| {
            let list = &self.traces[at];
            let is_alone = |parts: &usize| {
                let others = self.traces.iter().enumerate().filter(|(other, _)| *other != at);
                others.into_iter().all(|(_, other)| other.name(*parts) != list.name(*parts))
            };
            let parts = (1..=longest).find(is_alone);
            let parts = parts.ok_or_else(|| format!("{} is given twice", list.name(longest)))?;
            Ok(list.name(parts))
        };
        (0..self.traces.len()).map(name).collect()
    }

    /// The loads.
    ///
    /// # Errors
    /// If a value makes no sense, which [`load`](Self::load) finds before.
    pub fn loads(&self) -> Result<Vec<LoadSpec>, String> {
        let durability = self.durability()?;
        let rate = match &self.rate {
            Rate::Factor(factor) => LoadRate::Factor(*factor),
            Rate::Word(_) => LoadRate::Busy(self.target()?),
        };
        let window = self.window.as_ref().and_then(WindowText::choice);
        let load = |(list, name): (&TraceList, String)| LoadSpec {
            opens: Vec::new(),
            name,
            files: list.files().to_vec(),
            window,
            windows: Vec::new(),
            limit: self.limit,
            fit: self.fit,
            rate,
            durability,
            outstanding: None,
        };
        Ok(self.traces.iter().zip(self.names()?).map(load).collect())
    }

    /// The durability, if given.
    ///
    /// # Errors
    /// If the text is not a durability.
    pub fn durability(&self) -> Result<Option<Durability>, String> {
        self.durability.as_ref().map(|text| text.parse()).transpose()
    }

    /// Wanted utilisation of the plain drive with the rate `auto`.
    ///
    /// # Errors
    /// If the text is not a share between 0 and 1.
    pub fn target(&self) -> Result<f64, String> {
        let Some(text) = &self.utilisation else { return Ok(0.5) };
        let share = parse_share(text).filter(|share| *share > 0.0 && *share < 1.0);
        share.ok_or_else(|| format!("utilisation = {text:?}: expected a share such as \"50%\""))
    }

    /// Each policy with each combination of parameters.
    ///
    /// # Errors
    /// If an item is not a policy, or two items are the same.
    pub fn grid(&self) -> Result<Vec<NamedPolicy>, PolicyListError> {
        let mut combinations = vec![String::new()];
        for (key, values) in &self.parameters {
            let longer = |before: &String| {
                let before = before.clone();
                values.iter().map(move |value| match before.is_empty() {
                    true => format!("{key}={value}"),
                    false => format!("{before},{key}={value}"),
                })
            };
            combinations = combinations.iter().flat_map(longer).collect();
        }
        let mut names = Vec::new();
        for policy in parse_policies(&self.policies)? {
            let combinations: &[String] = if policy.is_plain() { &[] } else { &combinations };
            let joint = if policy.name.contains(':') { ',' } else { ':' };
            let mut added = combinations.iter().filter(|text| !text.is_empty()).peekable();
            if added.peek().is_none() {
                names.push(policy.name.clone());
            }
            names.extend(added.map(|text| format!("{}{joint}{text}", policy.name)));
        }
        parse_policies(&names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Sweep, String> {
        Sweep::parse(text, Path::new(""))
    }

    const LEAST: &str = "traces = ['t']\ndrives = ['exos-x20']\npolicies = ['nologging', 'mlb']\n";

    #[test]
    fn parameters_are_added_to_every_policy_but_the_plain_drive() {
        let text = format!("{LEAST}[parameters]\nthreshold = ['32K', '64K']\nhold = ['5ms']\n");
        let names: Vec<String> =
            parse(&text).unwrap().grid().unwrap().into_iter().map(|p| p.name).collect();
        let expected = ["nologging", "mlb:hold=5ms,threshold=32K", "mlb:hold=5ms,threshold=64K"];
        assert_eq!(names, expected);
    }

    #[test]
    fn traces_of_one_name_are_told_apart() {
        let text = "traces = ['x/a/t', 'x/b/t', 'x/a/u', ['x/a/t', 'x/a/u'], ['x/b/t', 'x/b/u']]\n\
                    drives = ['exos-x20']\npolicies = ['mlb']\n";
        let names: Vec<String> =
            parse(text).unwrap().loads().unwrap().into_iter().map(|load| load.name).collect();
        assert_eq!(names, ["a/t", "b/t", "u", "a/t + a/u", "b/t + b/u"]);
        let twice = parse(&LEAST.replace("['t']", "['x/t', 'x/t']")).unwrap_err();
        assert!(twice.contains("x/t is given twice"), "{twice}");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, words) in [
            ("polices = ['mlb']", "unknown field `polices`"),
            ("rate = 'fast'", "expected a number, or \"auto\""),
            ("window = 'noon'", "busiest-reads:LENGTH"),
            ("durability = 'maybe'", "sync-every=5s"),
            ("seeds = []", "`seeds` is empty"),
            ("[output]\nexcel = 'x'", "unknown field `excel`"),
            ("[parameters]\ntreshold = ['1K']", "did you mean `threshold`"),
        ] {
            let error = parse(&format!("{LEAST}{text}\n")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
