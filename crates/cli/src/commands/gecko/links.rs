//! `manylogs member add` and `manylogs member remove`: links of a chain come and go.

use std::path::{Path, PathBuf};

use manylogs_block::Nanos;
use manylogs_gecko::{Chain, ChainSettings, LinkError, Loss, OnLoss, ReplaceFault};
use manylogs_operate::control::Order;
use manylogs_serve::{
    LossTold, Member, ServedChain, Stack, StackOptions, is_member, is_same, link_of,
    refuse_link_member,
};
use manylogs_storage::OpenMode;

use super::members::{for_server, not_a_chain, while_open};
use super::members_failure;
use crate::args::gecko::{MemberAddArgs, MemberRemoveArgs};
use crate::commands::live;
use crate::commands::serve::control_failure;
use crate::commands::volume::format::{refuse_contents, refuse_zoned};
use crate::commands::volume::{human, in_use, stack_failure};
use crate::failure::Failure;
use crate::output::print;

/// How often a removal is asked for again that the opening goes on with.
const LOOK: Nanos = Nanos::from_millis(100);

pub(super) fn add(args: &MemberAddArgs) -> Result<(), Failure> {
    check_new(args)?;
    let link = match live::server(&args.base)? {
        Some(mut server) => {
            let absolute =
                |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
            let order = Order::AddMember { new: args.new.iter().map(absolute).collect() };
            server.ask(&order).map_err(control_failure)?["link"].as_u64().unwrap_or_default()
        }
        None => add_closed(args)?,
    };
    let new: Vec<String> = args.new.iter().map(|path| path.display().to_string()).collect();
    let (new, number) = (new.join(" and "), link + 1);
    print(&format!("{new}: link {number} of the chain now\n"))
}

fn check_new(args: &MemberAddArgs) -> Result<(), Failure> {
    let members = Member::all(&args.base, &[]).unwrap_or_default();
    let newest = members.iter().max_by_key(|member| member.label.age());
    let is_used = |member: &&Member| {
        let id = member.label.id;
        newest.is_some_and(|it| it.label.roster.place(id).is_some() || it.label.roster.joins(id))
    };
    for (index, new) in args.new.iter().enumerate() {
        if !new.exists() {
            return Err(Failure::input(format!("{} does not exist", new.display())));
        }
        if members.iter().filter(is_used).any(|member| is_same(&member.path, new)) {
            return Err(Failure::input(is_member(new)));
        }
        if args.new[..index].iter().any(|other| is_same(other, new)) {
            let new = new.display();
            return Err(Failure::input(format!("{new} is named twice: name two drives")));
        }
        refuse_contents(new, args.force)?;
        refuse_zoned(new, "a chain writes its labels and roots in place")?;
    }
    Ok(())
}

/// The chain of a drive, if nobody serves it.
fn chain_of(base: &Path) -> Result<ServedChain, Failure> {
    let found = ServedChain::of(base, &[], ChainSettings::default()).map_err(members_failure)?;
    found.ok_or_else(|| not_a_chain(base))
}

fn add_closed(args: &MemberAddArgs) -> Result<u64, Failure> {
    let chain = chain_of(&args.base)?;
    while_open(&chain, |stack, opened| {
        let mut drives = Vec::new();
        for new in &args.new {
            let refused = refuse_link_member(&opened.links(), &chain.members, new);
            refused.map_err(Failure::input)?;
            let drive = stack.beside(new, &StackOptions::new(new, OpenMode::Exclusive));
            let drive = drive.map_err(|error| in_use(new, stack_failure(error)))?;
            drives.push((drive, chain.members.len() + drives.len()));
        }
        let added = opened.clone();
        let link = stack.run(async move { added.add_link(drives).await });
        link.map(|link| link as u64).map_err(|error| failure(&error))
    })
}

pub(super) fn remove(args: &MemberRemoveArgs) -> Result<(), Failure> {
    let base = args.of.clone().unwrap_or_else(|| PathBuf::from(&args.old));
    let loss = match live::server(&base)? {
        Some(mut server) => {
            let (old, accept_loss) = (for_server(&args.old), args.accept_loss);
            let order = Order::RemoveMember { old, accept_loss };
            let answer = server.ask(&order).map_err(control_failure)?;
            match &answer["loss"] {
                serde_json::Value::Null => LossTold::default(),
                loss => serde_json::from_value(loss.clone()).map_err(Failure::failed)?,
            }
        }
        None => remove_closed(args, &base)?,
    };
    print(&format!("{} is no link of the chain any more\n", args.old))?;
    tell_loss(&loss)
}

/// Prints what was lost; a failure if something was.
fn tell_loss(loss: &LossTold) -> Result<(), Failure> {
    if loss.count == 0 {
        return Ok(());
    }
    let line = |(offset, len): &(u64, u64)| format!("LOST: {len} bytes at {offset}\n");
    print(&loss.ranges.iter().map(line).collect::<String>())?;
    let unnamed = loss.count.saturating_sub(loss.ranges.len() as u64);
    let more = if unnamed > 0 { " (manylogs check names all of them)" } else { "" };
    let (bytes, count) = (human(loss.bytes), loss.count);
    let least = if count < Loss::LISTED_MOST as u64 { "" } else { "at least " };
    let what = if count == 1 { "range" } else { "ranges" };
    Err(Failure::Loss(format!(
        "{bytes} in {least}{count} {what} are lost: reads there fail until they are written{more}"
    )))
}

fn remove_closed(args: &MemberRemoveArgs, base: &Path) -> Result<LossTold, Failure> {
    let chain = chain_of(base)?;
    while_open(&chain, |stack, opened| empty(args, &chain, stack, opened))
}

fn empty(
    args: &MemberRemoveArgs,
    chain: &ServedChain,
    stack: &Stack,
    opened: &Chain,
) -> Result<LossTold, Failure> {
    let links = opened.links();
    let link = link_of(&args.old, &links, &chain.members).map_err(Failure::input)?;
    let leaves = links.iter().any(|state| state.link == link && state.leaving.is_some());
    let on_loss = if args.accept_loss { OnLoss::Accept } else { OnLoss::Stop };
    let (chain, runtime) = (opened.clone(), stack.runtime());
    let removed = stack.run(async move {
        loop {
            match chain.remove_link(link, on_loss).await {
                // An earlier opening began with it, and this one goes on.
                Err(LinkError::Busy) if leaves => runtime.sleep(LOOK).await,
                Err(LinkError::NoSuchLink { .. }) if leaves => return Ok(Loss::default()),
                removed => return removed,
            }
        }
    });
    removed.map(|loss| LossTold::of(&loss)).map_err(|error| failure(&error))
}

fn failure(error: &LinkError) -> Failure {
    match error.fault() {
        ReplaceFault::Busy => Failure::Busy(error.to_string()),
        ReplaceFault::Failure => Failure::failed(error),
        ReplaceFault::Order => Failure::input(error),
    }
}
