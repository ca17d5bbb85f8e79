//! A replay frees the memory of its simulated world.

use super::*;

#[test]
fn a_world_is_freed_when_it_ends() {
    let profile = manylogs_disk::profile::find("wd5000ys").unwrap().unwrap();
    let settings = DriveSettings::new(Arc::new(profile), false);
    for policy in ["nologging", "mlb"] {
        let sim = Sim::new(1, TaskOrder::Fifo);
        let policy = NamedPolicy::parse(policy).unwrap();
        let stack = Stack::named(&sim, &settings, &policy, 1).unwrap();
        let known_to_observer = Rc::downgrade(&stack.head);
        drop(stack);
        drop(sim);
        assert!(known_to_observer.upgrade().is_none(), "{}", policy.name);
    }
}
