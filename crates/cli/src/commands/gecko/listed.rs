//! The chains of drives of this machine, for `manylogs list`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use manylogs_operate::status::ChainStatus;
use manylogs_serve::Member;
use serde_json::{Value, json};

use crate::commands::volume::id_text;

/// A drive of a chain, found on a disk or opened by a server.
pub(crate) struct Listed {
    chain: String,
    /// Its number in the chain, from 0.
    drive: usize,
    drives: usize,
    /// The server's process; `None` if no server of this user has the chain open.
    pid: Option<u32>,
}

/// Drives by their paths.
pub(crate) type Chains = BTreeMap<PathBuf, Listed>;

/// Reads the label of a disk or file; `None` if it has none.
pub(crate) fn found(path: &Path) -> Option<Listed> {
    let label = Member::at(path).ok()??.label;
    Some(Listed {
        chain: id_text(&label.chain),
        drive: label.drive,
        drives: label.drives,
        pid: None,
    })
}

/// Adds the drives of a served chain.
pub(crate) fn served(chains: &mut Chains, status: &ChainStatus, pid: u32) {
    let of_pairs = status.halves.iter().filter_map(|half| {
        half.path.as_ref().map(|path| (manylogs_block::to_usize(half.pair), path))
    });
    let links = status.links.iter().filter(|_| status.halves.is_empty());
    let single = links
        .flat_map(|link| link.paths.iter().map(|path| (manylogs_block::to_usize(link.link), path)));
    let all: Vec<(usize, &String)> = of_pairs.chain(single).collect();
    let drives = all.iter().map(|(drive, _)| drive + 1).max().unwrap_or_default();
    for (drive, member) in all {
        let path = PathBuf::from(member);
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        let chain = status.id.clone();
        chains.insert(path, Listed { chain, drive, drives, pid: Some(pid) });
    }
}

/// Header and rows of a table.
pub(crate) fn rows(chains: &Chains) -> Vec<[String; 4]> {
    let mut rows = vec![["DEVICE", "CHAIN", "MEMBER", "SERVER"].map(str::to_owned)];
    rows.extend(chains.iter().map(|(device, listed)| {
        [
            device.display().to_string(),
            listed.chain.clone(),
            format!("{} of {}", listed.drive + 1, listed.drives),
            listed.pid.map_or_else(|| "none".to_owned(), |pid| format!("process {pid}")),
        ]
    }));
    rows
}

/// The list as JSON.
pub(crate) fn as_json(chains: &Chains) -> Value {
    let member = |(device, listed): (&PathBuf, &Listed)| {
        json!({
            "device": device,
            "chain": listed.chain,
            "member": listed.drive,
            "drives": listed.drives,
            "server_pid": listed.pid,
        })
    };
    chains.iter().map(member).collect()
}
