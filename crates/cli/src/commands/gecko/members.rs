//! `manylogs member`: the drives of a chain of pairs, and putting another one in a half's place.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use manylogs_block::{BlockDevice, Nanos};
use manylogs_gecko::{Chain, ChainSettings, Copied, ReplaceError, ReplaceFault, Standing};
use manylogs_operate::control::Order;
use manylogs_operate::status::{ChainStatus, HalfStatus, LinkStatus};
use manylogs_serve::{
    ChainRefused, ChainView, Member, ServedChain, Stack, StackOptions, is_member, is_same,
    place_of, refuse_member,
};
use manylogs_storage::OpenMode;
use serde_json::json;

use super::{links, members_failure, refused};
use crate::args::gecko::{MemberArgs, MemberCommand, MemberListArgs, MemberReplaceArgs};
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::commands::volume::format::{refuse_contents, refuse_zoned};
use crate::commands::volume::{human, in_use, stack_failure};
use crate::failure::Failure;
use crate::output::print;

/// How often a copy that goes on is looked at.
const LOOK: Nanos = Nanos::from_millis(100);
/// State of a half that has everything.
const CURRENT: &str = "current";
/// The same if its link is being emptied.
const LEAVING: &str = "leaving";
/// The same if it cannot be emptied.
const STUCK: &str = "stuck";
/// State of a drive that is gone, without which the chain goes on.
const GONE: &str = "gone";

pub(crate) fn run(args: &MemberArgs) -> Result<(), Failure> {
    match &args.command {
        MemberCommand::List(args) => list(args),
        MemberCommand::Replace(args) => replace(args),
        MemberCommand::Add(args) => links::add(args),
        MemberCommand::Remove(args) => links::remove(args),
    }
}

fn list(args: &MemberListArgs) -> Result<(), Failure> {
    let base = &args.base;
    let halves = match live::server(base)? {
        Some(mut server) => {
            let status = live::ask(&mut server)?;
            let chain = status.chain.ok_or_else(|| not_a_chain(base))?;
            served_halves(&chain)
        }
        None => halves_of_labels(base)?,
    };
    if args.json {
        return print(&(serde_json::to_string_pretty(&json!(halves)).unwrap_or_default() + "\n"));
    }
    print(&halves.iter().map(|half| row(half) + "\n").collect::<String>())
}

pub(super) fn not_a_chain(path: &Path) -> Failure {
    Failure::input(format!("{} is no member of a chain of drives", path.display()))
}

/// The halves of a served chain. Each drive of a chain that is not mirrored is one.
fn served_halves(chain: &ChainStatus) -> Vec<HalfStatus> {
    let is = |pair: u64, what: fn(&LinkStatus) -> bool| {
        chain.links.iter().any(|link| what(link) && link.link == pair)
    };
    let state = |pair: u64| match () {
        () if is(pair, |link| link.lost) => GONE,
        () if is(pair, |link| link.problem.is_some()) => STUCK,
        () if is(pair, |link| link.leaving) => LEAVING,
        () => CURRENT,
    };
    if !chain.halves.is_empty() {
        let mut halves = chain.halves.clone();
        for half in halves.iter_mut().filter(|half| half.state == CURRENT) {
            state(half.pair).clone_into(&mut half.state);
        }
        return halves;
    }
    let half = |link: &LinkStatus| HalfStatus {
        pair: link.link,
        path: link.paths.first().cloned(),
        state: state(link.link).to_owned(),
        ..HalfStatus::default()
    };
    chain.links.iter().map(half).collect()
}

/// The halves of a chain that nobody serves, as its labels tell.
fn halves_of_labels(base: &Path) -> Result<Vec<HalfStatus>, Failure> {
    let members = Member::all(base, &[]).map_err(members_failure)?;
    let newest = members.iter().max_by_key(|member| member.label.age());
    let label = newest.ok_or_else(|| not_a_chain(base))?.label;
    let path = |id: u64| {
        let found = members.iter().find(|member| member.label.id == id);
        found.map(|member| member.path.display().to_string())
    };
    let mut all = Vec::new();
    let leaves = |pair: usize| label.roster.leaving.map(usize::from) == Some(pair);
    for pair in label.roster.in_use() {
        let link = &label.roster.links[pair];
        let state = if leaves(pair) { LEAVING } else { CURRENT };
        for (number, half) in link.iter().enumerate().take(label.halves) {
            let path = path(half.id);
            let state = if path.is_some() { state } else { "missing" };
            let since = path.is_some().then_some(half.since);
            all.push(told((pair, number), path, state, since));
        }
    }
    if let Some(joining) = label.roster.joining {
        let place = (joining.link.into(), joining.half.into());
        all.push(told(place, path(joining.id), "joining", None));
    }
    Ok(all)
}

fn told(
    (pair, half): (usize, usize),
    path: Option<String>,
    state: &str,
    since: Option<u32>,
) -> HalfStatus {
    let (pair, half, state) = (pair as u64, half as u64, state.to_owned());
    HalfStatus { pair, half, path, state, since, ..HalfStatus::default() }
}

/// A half in words.
pub(crate) fn row(half: &HalfStatus) -> String {
    let name = format!("{}.{}", half.pair + 1, half.half + 1);
    let path = half.path.as_deref().unwrap_or("-");
    match (half.state.as_str(), half.since) {
        ("joining", _) if half.segments > 0 => format!(
            "{name}  {path}  is copied to: {} of {} segments",
            half.copied_segments, half.segments
        ),
        ("joining", _) => {
            format!("{name}  {path}  joins: it is copied to while the chain is served")
        }
        (LEAVING, _) => format!("{name}  {path}  leaves: it is emptied while the chain is served"),
        (STUCK, _) => {
            format!("{name}  {path}  leaves, and cannot be emptied: manylogs status says why")
        }
        (GONE, _) => format!(
            "{name}  {path}  gone: reads of what it holds fail (member remove --accept-loss)"
        ),
        (state, Some(since)) => format!("{name}  {path}  {state} since opening {since}"),
        (state, None) => format!("{name}  {path}  {state}"),
    }
}

fn replace(args: &MemberReplaceArgs) -> Result<(), Failure> {
    let base = args.of.clone().unwrap_or_else(|| PathBuf::from(&args.old));
    if !args.new.exists() {
        return Err(Failure::input(format!("{} does not exist", args.new.display())));
    }
    refuse_current(args, &base)?;
    if let Some(mut server) = live::server(&base)? {
        check_new(args)?;
        let new = std::path::absolute(&args.new).unwrap_or_else(|_| args.new.clone());
        let order = Order::ReplaceMember { old: for_server(&args.old), new };
        let answer = server.ask(&order).map_err(control_failure)?;
        let bytes = answer["copied_bytes"].as_u64().unwrap_or_default();
        return joined(args, bytes);
    }
    let (named, resumes) = named(args, &base)?;
    if !resumes {
        check_new(args)?;
    }
    let settings = ChainSettings { degraded: args.degraded, ..ChainSettings::default() };
    let found = ServedChain::of(&base, &named, settings).map_err(members_failure)?;
    let chain = found.ok_or_else(|| {
        let base = base.display();
        Failure::input(format!("{base} is no member of a chain: name one with --of MEMBER"))
    })?;
    let copied = while_open(&chain, |stack, opened| copy(args, &chain, stack, opened))?;
    joined(args, copied.content.bytes())
}

fn joined(args: &MemberReplaceArgs, bytes: u64) -> Result<(), Failure> {
    let (new, old) = (args.new.display(), &args.old);
    print(&format!("{new} has everything now, in the place of {old}: {} copied\n", human(bytes)))
}

/// Refuses a new drive that is a current member of the chain: its pair needs what it holds, so no
/// option lets it be overwritten. A copy of such a drive is no member.
fn refuse_current(args: &MemberReplaceArgs, base: &Path) -> Result<(), Failure> {
    let Ok(members) = Member::all(base, &[]) else { return Ok(()) };
    let newest = members.iter().max_by_key(|member| member.label.age());
    let is_current = |member: &&Member| {
        newest.is_some_and(|newest| newest.label.roster.place(member.label.id).is_some())
    };
    match members.iter().filter(is_current).any(|member| is_same(&member.path, &args.new)) {
        true => Err(Failure::input(is_member(&args.new))),
        false => Ok(()),
    }
}

/// Refuses a new drive with content.
fn check_new(args: &MemberReplaceArgs) -> Result<(), Failure> {
    refuse_contents(&args.new, args.force)?;
    refuse_zoned(&args.new, "a chain writes its labels and roots in place")
}

/// The new drive, if an earlier replacement began with it and did not end; and whether it did.
fn named(args: &MemberReplaceArgs, base: &Path) -> Result<(Vec<PathBuf>, bool), Failure> {
    let Some(new) = Member::at(&args.new).map_err(members_failure)? else {
        return Ok((Vec::new(), false));
    };
    let Ok(members) = Member::all(base, &[]) else { return Ok((Vec::new(), false)) };
    let newest = members.iter().max_by_key(|member| member.label.age());
    let joins = newest.is_some_and(|newest| {
        newest.label.chain == new.label.chain && newest.label.roster.joins(new.label.id)
    });
    Ok(if joins { (vec![args.new.clone()], true) } else { (Vec::new(), false) })
}

/// `old` for a server, which may run in another folder. Numbers, and drives that are gone, stay as
/// they are.
pub(super) fn for_server(old: &str) -> String {
    let is_number = old.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
    match std::path::absolute(old) {
        Ok(path) if !is_number && path.exists() => path.display().to_string(),
        _ => old.to_owned(),
    }
}

/// Opens a chain that nobody serves for `work`, and closes it whatever comes of that.
pub(super) fn while_open<T>(
    chain: &ServedChain,
    work: impl FnOnce(&Stack, &Chain) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let (stack, opened) = open(chain)?;
    let result = work(&stack, &opened);
    let closed = stack.run(async move { opened.close().await });
    let result = result?;
    closed.map_err(Failure::failed)?;
    Ok(result)
}

/// Opens a chain that nobody serves.
fn open(chain: &ServedChain) -> Result<(Stack, Chain), Failure> {
    let (stack, drives) = drives(chain, OpenMode::Exclusive)?;
    let opened = stack.run(Chain::open(stack.runtime(), drives, chain.settings));
    let opened = opened.map_err(|error| refused(&ChainRefused::new(&chain.members, error)))?;
    Ok((stack, opened))
}

/// Opens the drives of a chain that nobody serves.
pub(super) fn drives(
    chain: &ServedChain,
    mode: OpenMode,
) -> Result<(Stack, Vec<Rc<dyn BlockDevice>>), Failure> {
    let first = chain.members.first().ok_or_else(|| Failure::input("the chain has no members"))?;
    let options = StackOptions::new(first, mode);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error| in_use(&path, stack_failure(error))
    };
    let mut stack = Stack::open(&options).map_err(failed(first))?;
    let mut drives = vec![Rc::clone(&stack.device)];
    for path in chain.members.iter().skip(1) {
        drives.push(stack.beside(path, &options).map_err(failed(path))?);
    }
    stack.lock_as(chain.id).map_err(failed(first))?;
    Ok((stack, drives))
}

fn copy(
    args: &MemberReplaceArgs,
    chain: &ServedChain,
    stack: &Stack,
    opened: &Chain,
) -> Result<Copied, Failure> {
    let halves = opened.halves();
    if halves.is_empty() {
        return Err(replace_failure(&args.new, &ReplaceError::NotMirrored));
    }
    let joins = halves.iter().find(|half| matches!(half.standing, Standing::Joining(_)));
    let new = joins
        .and_then(|half| chain.members.get(half.given?))
        .filter(|path| is_same(path, &args.new));
    if let (Some(_), Some(joining)) = (new, joins) {
        return wait(args, stack, opened, joining.id);
    }
    let view = ChainView { halves: &halves, paths: &chain.members };
    refuse_member(&view, &args.new).map_err(Failure::input)?;
    let place = place_of(&args.old, &halves, &chain.members).map_err(Failure::input)?;
    let options = StackOptions::new(&args.new, OpenMode::Exclusive);
    let drive = stack.beside(&args.new, &options);
    let drive = drive.map_err(|error| in_use(&args.new, stack_failure(error)))?;
    let (chain, given) = (opened.clone(), chain.members.len());
    let copied = stack.run(async move { chain.replace(place, (drive, given)).await });
    copied.map_err(|error| replace_failure(&args.new, &error))
}

/// Waits for a copy that the opening goes on with.
fn wait(
    args: &MemberReplaceArgs,
    stack: &Stack,
    opened: &Chain,
    id: u64,
) -> Result<Copied, Failure> {
    let (chain, runtime) = (opened.clone(), stack.runtime());
    let copied = stack.run(async move {
        let mut last = Copied::default();
        loop {
            let halves = chain.halves();
            let half = halves.iter().find(|half| half.id == id);
            match half.map(|half| half.standing) {
                Some(Standing::Joining(copied)) => last = copied.unwrap_or(last),
                Some(Standing::Current(_)) => return Some(last),
                _ => return None,
            }
            runtime.sleep(LOOK).await;
        }
    });
    copied.ok_or_else(|| replace_failure(&args.new, &ReplaceError::Failed))
}

fn replace_failure(new: &Path, error: &ReplaceError) -> Failure {
    let message = format!("{}: {error}", new.display());
    match error.fault() {
        ReplaceFault::Busy => Failure::Busy(message),
        ReplaceFault::Failure => Failure::failed(message),
        ReplaceFault::Order => Failure::Input(message),
    }
}
