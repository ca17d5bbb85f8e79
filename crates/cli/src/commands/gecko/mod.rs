//! Commands on chains of drives (Gecko).

pub(crate) mod check;
pub(crate) mod format;
pub(crate) mod links;
pub(crate) mod listed;
pub(crate) mod members;
pub(crate) mod scrub;

use std::fmt::Write as _;
use std::path::Path;

use manylogs_gecko::{ChainError, ChainMember, table_bytes_most};
use manylogs_operate::status::{ChainStatus, FlashStatus, PowerStatus};
use manylogs_serve::{ChainRefused, Member, MembersError, ServedChain};
use serde_json::json;

use super::volume::{human, id_text};
use crate::args::serve::ServeArgs;
use crate::failure::Failure;
use crate::output::print;

/// The arguments changed for the chain of the device, which they then name by its first drive;
/// unchanged if the device belongs to no chain.
pub(crate) fn resolved(args: &ServeArgs) -> Result<ServeArgs, Failure> {
    let mut args = args.clone();
    if args.raw {
        return Ok(args);
    }
    let device = &args.volume.device;
    let found = ServedChain::of(device, &args.chain_of.member, args.chain_of.settings());
    let Some(mut chain) = found.map_err(members_failure)? else { return Ok(args) };
    refuse_what_volumes_have(&args)?;
    refuse_little_memory(&args, &chain)?;
    refuse_sleep(&args, &chain)?;
    // The first member names the mount point and the socket, whichever member was given.
    if let Some(first) = chain.members.first() {
        args.volume.device.clone_from(first);
    }
    chain.cache.clone_from(&args.chain_of.cache);
    args.chain = Some(chain);
    Ok(args)
}

/// Refuses a bound of memory below what the chain may need.
fn refuse_little_memory(args: &ServeArgs, chain: &ServedChain) -> Result<(), Failure> {
    let Some(memory) = args.chain_of.memory else { return Ok(()) };
    let table = table_bytes_most(chain.export, chain.segments);
    let cache = args.chain_of.cache_memory.bytes();
    if table + cache <= memory.bytes() {
        return Ok(());
    }
    Err(Failure::input(format!(
        "--memory: {} are too little: written at random, the map of this chain takes up to {}, and \
         its tail cache {}",
        human(memory.bytes()),
        human(table),
        human(cache)
    )))
}

/// Refuses sleep where nobody may sleep.
fn refuse_sleep(args: &ServeArgs, chain: &ServedChain) -> Result<(), Failure> {
    if !args.chain_of.sleep || chain.halves > 1 {
        return Ok(());
    }
    let device = args.volume.device.display();
    Err(Failure::input(format!(
        "--sleep: {device} is of a chain of single drives: only halves of pairs sleep (format \
         --mirror)"
    )))
}

fn refuse_what_volumes_have(args: &ServeArgs) -> Result<(), Failure> {
    let device = args.volume.device.display();
    let refused = |option: &str, why: &str| {
        Err(Failure::input(format!("{option}: {device} is a member of a chain of drives: {why}")))
    };
    if args.volume.table.is_some() || args.volume.give_up_table {
        return refused("--table", "its map is rebuilt from its records");
    }
    if args.emulate.is_some() {
        return refused("--emulate", "manylogs chain models chains of drives");
    }
    if !args.borrow.stores.is_empty() {
        return refused("--store", "volumes and disks alone borrow stores");
    }
    if args.drive.is_some() {
        return refused("--drive", "nothing of it depends on the drive's model");
    }
    Ok(())
}

/// The failure, with its exit code, for members that were not found.
pub(crate) fn members_failure(error: MembersError) -> Failure {
    match &error {
        MembersError::Io { source, .. } => Failure::of_given(source, &error),
        MembersError::Label { source, .. } => chain_failure(source, &error),
        _ => Failure::input(error),
    }
}

/// The failure, with its exit code, for a chain that was refused.
pub(crate) fn refused(error: &ChainRefused) -> Failure {
    chain_failure(&error.error, error)
}

fn chain_failure(error: &ChainError, message: impl std::fmt::Display) -> Failure {
    match error {
        ChainError::Version { .. } => Failure::TooNew(message.to_string()),
        ChainError::Damaged { .. } | ChainError::NoRoot | ChainError::StaleRoot => {
            Failure::Loss(message.to_string())
        }
        ChainError::Io(_) | ChainError::Worn => Failure::failed(message),
        _ => Failure::input(message),
    }
}

/// The failure of commands on volumes if the device at `path` is a member of a chain.
pub(crate) fn not_a_volume(path: &Path) -> Option<Failure> {
    match Member::at(path) {
        Ok(Some(member)) => {
            let (at, words) = (path.display(), member.words());
            Some(Failure::input(format!(
                "{at} is {words}, and no volume: manylogs status {at} tells of it, manylogs serve \
                 {at} finds the others and serves them"
            )))
        }
        Err(error @ MembersError::Label { .. }) => Some(members_failure(error)),
        _ => None,
    }
}

/// `manylogs status` for a member that is not served; false if the device is no member.
pub(crate) fn status(path: &Path, json: bool) -> Result<bool, Failure> {
    let member = match Member::at(path) {
        Ok(Some(member)) => member,
        Err(error @ MembersError::Label { .. }) => return Err(members_failure(error)),
        // A device that cannot be opened is refused by the code for volumes.
        _ => return Ok(false),
    };
    let all = Member::all(path, &[]);
    if json {
        let mut value = as_json(&member.label);
        value["device"] = json!(path);
        match &all {
            Ok(all) => value["members"] = all.iter().map(|member| json!(member.path)).collect(),
            Err(error) => value["problem"] = json!(error.to_string()),
        }
        print(&(serde_json::to_string_pretty(&value).unwrap_or_default() + "\n"))?;
        return Ok(true);
    }
    let label = &member.label;
    let links = label.roster.in_use().count();
    let raw = label.segment.bytes() * label.segments * links as u64;
    let what = if label.halves > 1 { "pairs of drives" } else { "drives" };
    let mut out = format!(
        "chain           {} of {} {what}\n\
         this drive      member {}, last opened {} times\n\
         for data        {} ({:.1} % of {})\n\
         segments        {} of {} on each drive\n",
        id_text(&label.chain),
        links,
        label.drive + 1,
        label.opening,
        human(label.export.bytes()),
        100.0 * label.export.bytes() as f64 / raw as f64,
        human(raw),
        label.segments,
        human(label.segment.bytes()),
    );
    match all {
        Ok(all) => {
            for member in all {
                let number = member.label.drive + 1;
                let _ = writeln!(out, "member {number}        {}", member.path.display());
            }
            if label.halves > 1 {
                out += "halves          manylogs member list names them\n";
            }
            let _ = writeln!(out, "state           not served: manylogs serve {}", path.display());
        }
        Err(error) => {
            let _ = writeln!(out, "trouble         {error}");
        }
    }
    print(&out)?;
    Ok(true)
}

fn as_json(label: &ChainMember) -> serde_json::Value {
    json!({
        "chain": id_text(&label.chain),
        "member": label.drive,
        "drives": label.drives,
        "halves": label.halves,
        "opening": label.opening,
        "capacity_bytes": label.export.bytes(),
        "segment_bytes": label.segment.bytes(),
        "segments_per_drive": label.segments,
    })
}

/// What the tail cache has answered.
fn hits(chain: &ChainStatus) -> String {
    let reads = chain.tail_hits + chain.tail_misses;
    let percent = 100.0 * chain.tail_hits as f64 / reads.max(1) as f64;
    format!(
        "{} of {reads} reads of the tail's drive hit ({percent:.1} %), and {} of other drives",
        chain.tail_hits, chain.body_hits
    )
}

/// What a half that may sleep does.
fn power(power: &PowerStatus) -> String {
    if power.state == "unsupported" {
        return ", never sleeps: nothing commands its power".to_owned();
    }
    let all = power.active_seconds + power.idle_seconds + power.spin_up_seconds;
    let percent =
        100.0 * power.standby_seconds as f64 / (all + power.standby_seconds).max(1) as f64;
    let spent = power
        .milliwatt_hours
        .map_or(String::new(), |spent| format!(", {:.1} Wh by its profile", spent as f64 / 1e3));
    format!(
        ", {}: asleep for {percent:.0} %, {} starts, {} left today{spent}",
        power.state, power.starts, power.starts_left
    )
}

/// The row about the SSD of the tail cache.
fn ssd(flash: &FlashStatus) -> String {
    let state = match &flash.problem {
        Some(problem) => format!("is not used: {problem}"),
        None if flash.silent => "is given up: it did not answer in time".to_owned(),
        None if flash.given_up => format!("is given up after {} faults", flash.faults),
        None => format!(
            "{} of {} held, {} hits, {} faults; {} written ({} ever)",
            human(flash.held_bytes),
            human(flash.size_bytes),
            flash.hits,
            flash.faults,
            human(flash.written_bytes),
            human(flash.written_ever_bytes),
        ),
    };
    match flash.path.as_str() {
        "" => format!("cache's SSD     {state}\n"),
        path => format!("cache's SSD     {path}: {state}\n"),
    }
}

/// The rows of a status about a served chain.
pub(crate) fn rows(chain: &ChainStatus) -> String {
    let mut out = format!("chain           {} of {} drives\n", chain.id, chain.members.len());
    for half in &chain.halves {
        let tail = if chain.tail == half.pair { ", the tail" } else { "" };
        let power = half.power.as_ref().map(power).unwrap_or_default();
        let _ = writeln!(out, "half            {}{tail}{power}", members::row(half));
    }
    for link in chain.links.iter().filter(|_| chain.halves.is_empty()) {
        let tail = if chain.tail == link.link { ", the tail" } else { "" };
        let _ = writeln!(out, "member {}        {}{tail}", link.link + 1, link.paths.join(" "));
    }
    for link in chain.links.iter().filter(|link| link.leaving) {
        let (number, left) = (link.link + 1, human(link.bytes_left));
        let segments = link.segments_left;
        let _ = writeln!(out, "leaves          {number}: {left} in {segments} segments are left");
        if let Some(problem) = &link.problem {
            let _ = writeln!(out, "stuck           {problem}");
        }
    }
    for link in chain.links.iter().filter(|link| link.lost) {
        let number = link.link + 1;
        let _ = writeln!(
            out,
            "gone            the drive of link {number}: reads of what it holds fail; attach it \
             and serve the chain again, or let it leave (member remove {number} --accept-loss)"
        );
    }
    if let Some(reason) = &chain.read_only {
        let _ = writeln!(out, "read-only       {reason}");
    }
    let per_byte = chain.appended_bytes as f64 / chain.written_bytes.max(1) as f64;
    let _ = writeln!(
        out,
        "written         {} by clients, {} appended ({per_byte:.2} for each byte)\n\
         cleaning        {}: {} renewed, {} segments emptied; the tail hopped {} times, clients \
         waited {} times\n\
         in memory       the map takes {}, the tail cache {} of {}\n\
         tail cache      {}",
        human(chain.written_bytes),
        human(chain.appended_bytes),
        chain.cleaning,
        human(chain.renewed_bytes),
        chain.emptied_segments,
        chain.hops,
        chain.waited_writes,
        human(chain.table_bytes),
        human(chain.cache_bytes),
        human(chain.cache_bytes_max),
        hits(chain),
    );
    out + &chain.flash.as_ref().map(ssd).unwrap_or_default()
}
