//! Modelled drives.

use std::path::PathBuf;

use manylogs_disk::Profile;
use manylogs_disk::profile::{Library, catalogue, drives};
use manylogs_lab::known::Known;
use manylogs_workload::read_info;
use pyo3::prelude::*;

use crate::failure::Failure;

/// Name, model, serial number, revolutions a minute, sectors and link of a disk.
type Recorded = (String, String, String, Option<u32>, u64, String);

/// The facts about the disk in the header of a trace; empty if it has none.
#[pyfunction]
pub(crate) fn recorded(trace: PathBuf) -> Recorded {
    let info = read_info(&trace).unwrap_or_default();
    let known = Known::noted(&info);
    (known.name, known.model, known.serial, known.rpm, known.sectors, info.link)
}

/// The profile of a drive.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Drive {
    pub(crate) profile: Profile,
    /// The name that the user gave.
    pub(crate) asked: String,
}

#[pymethods]
impl Drive {
    #[new]
    fn new(name: &str) -> PyResult<Self> {
        let found = Library::of_user().find_or_load(name).map_err(Failure::from)?;
        let profile = found.ok_or_else(|| {
            Failure::input(format!(
                "unknown drive `{name}`; there are: {}, those of `manylogs drive list --all`, and \
                 profile files (NAME.toml)",
                drives().join(", ")
            ))
        })?;
        Ok(Self { profile, asked: name.to_owned() })
    }

    /// The drive described by the text of a profile; errors call it `name`.
    #[staticmethod]
    fn of_toml(name: &str, text: &str) -> PyResult<Self> {
        let profile = Profile::parse(name, text).map_err(Failure::from)?;
        Ok(Self { profile, asked: name.to_owned() })
    }

    /// The drive that models a disk, and how it was found: `own`, `catalogue` or `class`.
    /// `recorded` has the facts from [`recorded`], which are used where the other arguments are
    /// empty.
    #[staticmethod]
    fn of_disk(model: &str, serial: &str, recorded: Recorded) -> PyResult<(Self, &'static str)> {
        let (name, recorded_model, recorded_serial, rpm, sectors, link) = recorded;
        let or = |given: &str, recorded: String| match given.is_empty() {
            true => recorded,
            false => given.to_owned(),
        };
        let (model, serial) = (or(model, recorded_model), or(serial, recorded_serial));
        let known = Known { name, model, serial, rpm, sectors, link: link.parse().ok() };
        let chosen = known.choose(&Library::of_user()).map_err(Failure::from)?;
        let asked = chosen.profile.name.clone();
        Ok((Self { profile: chosen.profile, asked }, chosen.how.word()))
    }

    #[getter]
    fn asked(&self) -> &str {
        &self.asked
    }

    #[getter]
    fn name(&self) -> &str {
        &self.profile.name
    }

    #[getter]
    fn model(&self) -> &str {
        &self.profile.model
    }

    #[getter]
    fn capacity_bytes(&self) -> u64 {
        self.profile.capacity().bytes()
    }

    #[getter]
    fn rpm(&self) -> f64 {
        self.profile.rpm()
    }

    /// The profile as the text of a TOML file.
    fn toml(&self) -> String {
        self.profile.toml()
    }

    /// Names of the drives that come with the package; with `all` also those of the catalogue.
    #[staticmethod]
    fn names(all: bool) -> PyResult<Vec<String>> {
        let mut names: Vec<String> = drives().iter().map(|&name| name.to_owned()).collect();
        if all {
            let sheets = catalogue().map_err(Failure::program)?;
            names.extend(sheets.iter().map(|sheet| sheet.name.clone()));
        }
        Ok(names)
    }
}
