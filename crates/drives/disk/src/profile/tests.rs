use super::*;

fn cheetah_text() -> &'static str {
    include_str!("../../../../../profiles/cheetah-15k5.toml")
}

fn refused(from: &str, to: &str) -> String {
    let text = cheetah_text();
    assert!(text.contains(from), "{from}");
    Profile::parse("test.toml", &text.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn every_built_in_profile_is_valid_and_sourced() {
    for name in drives() {
        let profile = find(name).unwrap().unwrap();
        assert_eq!(profile.name, name);
    }
    assert!(find("no-such-drive").unwrap().is_none());
}

#[test]
fn capacities_are_exact() {
    let expected = [
        ("cheetah-15k5", 286_749_488),
        ("constellation-es3", 1_953_525_168),
        ("exos-x20", 39_063_650_304),
        ("st8000as0002", 15_628_053_168),
        ("wd40nmzw", 7_814_037_168),
        ("wd5000ys", 976_773_168),
    ];
    for (name, sectors) in expected {
        let profile = find(name).unwrap().unwrap();
        assert_eq!(profile.capacity().0, sectors, "{name}");
        let geometry = crate::Geometry::new(&profile.geometry);
        let medium = geometry.capacity_sectors();
        assert!(medium == sectors || profile.shingled.is_some(), "{name}");
        let last = geometry.locate(manylogs_block::Lba(medium - 1));
        assert!(last.cylinder < geometry.cylinders() && last.head < geometry.heads(), "{last:?}");
    }
}

#[test]
fn each_number_without_a_source_is_refused() {
    let mut sources = 0;
    for line in cheetah_text().lines().filter(|line| line.starts_with("source.")) {
        let text = cheetah_text().replacen(line, "", 1);
        // When the last source of a table is removed, the table is gone, too.
        let message = Profile::parse("test.toml", &text).unwrap_err().to_string();
        assert!(message.contains("source"), "{line}: {message}");
        sources += 1;
    }
    assert!(sources > 30, "only {sources} sources found");
}

#[test]
fn errors_name_key_and_expectation() {
    let missing = refused("source.heads = \"DIXtrac\"", "");
    assert!(missing.contains("`geometry.heads` names no source"), "{missing}");
    let unknown = refused("jitter_ms = 0.108", "jitter_ms = 0.108\njiter_ms = 1.0");
    assert!(unknown.contains("unknown field `jiter_ms`"), "{unknown}");
    let depth = refused("depth = 8", "depth = 33");
    assert!(depth.contains("`queue.depth`: expected a number from 1 to 32, found 33"), "{depth}");
    let policy = refused("policy = \"sptf\"", "policy = \"best\"");
    assert!(policy.contains("expected \"fcfs\", \"elevator\" or \"sptf\""), "{policy}");
    let full = refused("[7801, 1160, 37_387_200]", "[7801, 1160, 37_487_200]");
    assert!(full.contains("`geometry.zones[0]`: expected at most"), "{full}");
    let knots = refused("[3, 0.597]", "[1, 0.597]");
    assert!(knots.contains("expected distances that rise"), "{knots}");
}
