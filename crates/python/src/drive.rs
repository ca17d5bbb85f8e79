//! Modelled drives.

use manylogs_disk::Profile;
use manylogs_disk::profile::{Library, catalogue, drives};
use pyo3::prelude::*;

use crate::failure::Failure;

/// The profile of a drive.
#[pyclass(frozen, module = "manylogs")]
#[derive(Debug)]
pub(crate) struct Drive {
    pub(crate) profile: Profile,
    /// As it was asked for.
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

    /// Names of the drives that come with the package; those of the catalogue too, if asked for.
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
