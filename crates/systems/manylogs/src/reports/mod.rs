//! Counters, sizes and forecasts.

pub(crate) mod backlog;
pub(crate) mod counters;
pub(crate) mod home_pace;
pub(crate) mod outlook;
pub(crate) mod stats;
