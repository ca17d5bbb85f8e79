//! Halves that sleep, as the operator of a served chain sees them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{Handle, Nanos};
use manylogs_disk::profile::{PowerTable, catalogued_model};
use manylogs_gecko::{Chain, ChainSettings, HalfPower, SleepSettings};
use manylogs_operate::log::{Level, line};
use manylogs_operate::status::PowerStatus;
use manylogs_storage::identify;

/// How often the log is told of starts.
const TOLD_EVERY: Nanos = Nanos::from_secs(1);

/// Power and starts of the drive at `path`, if the catalogue has its model.
fn profiled(path: &Path) -> Option<PowerTable> {
    let told = identify(path).ok().filter(|drive| !drive.is_made_up)?;
    let sheet = catalogued_model(&told.model).ok().flatten()?.clone();
    let name = sheet.name.clone();
    sheet.profile(&name).ok().map(|profile| profile.power())
}

/// The settings with the longest start that the profiles of the drives name.
pub(super) fn with_profiles(settings: ChainSettings, members: &[PathBuf]) -> ChainSettings {
    let longest = |sleep: SleepSettings| {
        let starts = members.iter().filter_map(|path| profiled(path)).map(|it| it.spin_up());
        let spin_up = starts.max().unwrap_or(sleep.spin_up).max(Nanos::from_secs(1));
        SleepSettings { spin_up, ..sleep }
    };
    ChainSettings { sleep: settings.sleep.map(longest), ..settings }
}

/// The power of the half that was given with this number; `None` if none may sleep.
pub(super) fn status(
    power: &[HalfPower],
    given: usize,
    path: Option<&Path>,
) -> Option<PowerStatus> {
    let half = power.iter().find(|half| half.given == given)?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
    let spent = |table: PowerTable| (table.watt_hours(&half.times) * 1e3).round() as u64;
    let seconds = |time: Nanos| time.0 / Nanos::from_secs(1).0;
    Some(PowerStatus {
        state: half.state.map_or("unsupported", |state| state.name()).to_owned(),
        active_seconds: seconds(half.times.active),
        idle_seconds: seconds(half.times.idle),
        spin_up_seconds: seconds(half.times.spin_up),
        standby_seconds: seconds(half.times.standby),
        starts: half.times.starts,
        starts_left: half.starts_left,
        waited: half.waited,
        milliwatt_hours: path.and_then(profiled).map(spent),
    })
}

/// Tells the log of each start and of its cause, and once of drives that cannot sleep.
pub(super) fn log_wakes(runtime: &Handle, chain: &Chain, members: &Rc<RefCell<Vec<PathBuf>>>) {
    let (clock, chain, members) = (runtime.clone(), chain.clone(), Rc::clone(members));
    runtime.spawn(async move {
        let (mut told, mut refused) = (0, Vec::new());
        loop {
            clock.sleep(TOLD_EVERY).await;
            let path = |given: usize| members.borrow().get(given).cloned();
            let last = told;
            for wake in chain.wakes().into_iter().filter(|wake| wake.number > last) {
                let message = format!("the half was started: {}", wake.cause);
                line(Level::Info, path(wake.given).as_deref(), &message, &[]);
                told = wake.number;
            }
            for half in chain.power().into_iter().filter(|half| half.state.is_none()) {
                if !refused.contains(&half.given) {
                    refused.push(half.given);
                    let message = "the half never sleeps: nothing commands the power of its drive";
                    line(Level::Warning, path(half.given).as_deref(), message, &[]);
                }
            }
        }
    });
}
