//! A mounted image: programs use it through the kernel, and e2fsck checks it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use common::{Mount, have, sh};
use manylogs_mount::{MountOptions, serve};

#[test]
fn programs_find_what_they_wrote_now_and_after_the_next_mount() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let root = mount.root();
    fs::create_dir(root.join("dir")).unwrap();
    let mut file = File::create(root.join("dir/file")).unwrap();
    file.write_all(&[7; 100_000]).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(b"sparse", 5_000_000).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(root.join("dir/file"), root.join("link")).unwrap();
    symlink("dir/file", root.join("symlink")).unwrap();
    fs::rename(root.join("dir"), root.join("moved")).unwrap();
    // A file without a name can be used until it is closed.
    let mut options = File::options();
    let open = options.read(true).write(true).create(true).truncate(true);
    let open = open.open(root.join("open")).unwrap();
    fs::remove_file(root.join("open")).unwrap();
    open.write_all_at(&[1; 50_000], 0).unwrap();
    let mut read = [0; 10];
    open.read_exact_at(&mut read, 49_990).unwrap();
    assert_eq!(read, [1; 10]);
    drop(open);
    assert_eq!(fs::read_link(root.join("symlink")).unwrap(), Path::new("dir/file"));
    for number in 0..500 {
        fs::write(root.join(format!("moved/{number}")), number.to_string()).unwrap();
    }
    assert_eq!(fs::read_dir(root.join("moved")).unwrap().count(), 501);
    drop(file);
    mount.stop();
    mount.start();
    let known = fs::metadata(root.join("link")).unwrap();
    assert_eq!((known.len(), known.nlink(), known.mode()), (5_000_006, 2, 0o104_755));
    let content = fs::read(root.join("moved/file")).unwrap();
    assert!(content[..100_000] == [7; 100_000] && content[5_000_000..] == *b"sparse");
    assert!(content[100_000..5_000_000].iter().all(|byte| *byte == 0));
    assert_eq!(fs::read_to_string(root.join("moved/499")).unwrap(), "499");
    fs::remove_dir_all(root.join("moved")).unwrap();
    mount.stop();
}

#[test]
fn what_cannot_be_mounted_is_refused_by_name() {
    let Some(mount) = Mount::new(&["-b", "1024"]) else { return };
    let refused = serve(&mount.image(), &mount.root(), MountOptions::default(), || ())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("1024 bytes") && refused.contains("-b 4096"), "{refused}");
    let Some(mount) = Mount::new(&["-b", "4096", "-O", "quota"]) else { return };
    let refused = serve(&mount.image(), &mount.root(), MountOptions::default(), || ())
        .unwrap_err()
        .to_string();
    assert!(refused.contains("feature quota"), "{refused}");
}

#[test]
fn attributes_and_lists_of_access_are_those_of_a_local_file_system() {
    if !have(&["setfattr", "getfattr", "setfacl", "getfacl", "setpriv"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let said = sh(
        &mount,
        "touch f; setfattr -n user.a -v 1 f; setfattr -n trusted.b -v 2 f
        getfattr -d -m - f; setfattr -x user.a f; ! getfattr -n user.a f
        ! setfattr -n user.large -v $(head -c 5000 /dev/zero | tr '\\0' x) f",
    );
    assert!(said.contains("user.a=\"1\"") && said.contains("trusted.b=\"2\""), "{said}");
    assert!(said.contains("No such attribute") && said.contains("No space left"), "{said}");
    // The kernel checks permissions by our access control lists.
    let script = format!(
        "chmod 711 .; mkdir d; chmod 700 d; echo secret >d/s; chmod 600 d/s
        ! {nobody} cat d/s
        setfacl -m u:65534:rx d; setfacl -m u:65534:r d/s; {nobody} cat d/s; stat -c %a d d/s
        chmod 600 d/s; ! {nobody} cat d/s
        setfacl -d -m u:65534:rwx d; umask 077; echo new >d/n; mkdir d/sub; getfacl -cn d/n d/sub
        setfacl -b d/n; stat -c %a d/n"
    );
    let said = sh(&mount, &script);
    assert!(said.contains("secret\n750\n640"), "{said}");
    assert_eq!(said.matches("Permission denied").count(), 2, "{said}");
    assert!(said.contains("user:65534:rwx\t#effective:rw-"), "{said}");
    assert!(said.contains("default:user:65534:rwx"), "{said}");
    let after = sh(&mount, "getfacl -cn d/s | grep 65534");
    mount.stop();
    mount.start_with("ro");
    assert_eq!(sh(&mount, "getfacl -cn d/s | grep 65534"), after);
    let said = sh(&mount, "! touch new; ! setfattr -n user.x -v 1 f; cat d/s");
    assert_eq!(said.matches("Read-only file system").count(), 2, "{said}");
    mount.stop();
}

#[test]
fn privileges_are_lost_when_a_file_changes() {
    if !have(&["setfattr", "setpriv", "getfattr"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let script = format!(
        "chmod 711 .; capability=0x0100000200040000000000000000000000000000
        for how in 'dd if=/dev/zero of=F bs=1 count=1 conv=notrunc status=none' \
            'truncate -s 1 F' 'chown 1:1 F'; do
            rm -f f; echo content >f; chmod 6777 f
            setfattr -n security.capability -v $capability f
            getfattr -n security.capability f >/dev/null
            case $how in chown*) as= ;; *) as='{nobody}' ;; esac
            $as $(echo \"$how\" | sed s/F/f/)
            ! getfattr -n security.capability f 2>/dev/null
            stat -c '%a %s' f
        done
        echo content >g; chmod 4777 g; echo more >>g; stat -c %a g
        chmod 4777 f; stat -c %A f
        {nobody} dd if=/dev/zero of=f bs=4096 count=1 conv=notrunc oflag=direct status=none
        stat -c %A f; chmod 6666 f; stat -c %A f; {nobody} fallocate -l 8192 f; stat -c %A f
        chmod 6676 f; stat -c %A f; fallocate -l 9000 f; stat -c %A f"
    );
    let said = sh(&mount, &script);
    assert_eq!(
        said,
        "777 8\n777 1\n777 8\n4777\n-rwsrwxrwx\n-rwxrwxrwx\n\
         -rwSrwSrw-\n-rw-rw-rw-\n-rwSrwsrw-\n-rwSrwsrw-\n"
    );
    mount.stop();
}

#[test]
fn times_of_access_change_as_the_options_say() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    let old = "touch -a -d @1000000000 f; touch -m -d @1100000000 f";
    // Reads content that is not in the page cache.
    let read = "cat f >/dev/null; stat -c %X f";
    for (list, first, again) in
        [("noatime", false, false), ("", true, false), ("strictatime", true, true)]
    {
        mount.start_with(list);
        sh(&mount, "echo content >f");
        sh(&mount, old);
        mount.stop();
        mount.start_with(list);
        let changed = sh(&mount, read).trim() != "1000000000";
        assert_eq!(changed, first, "{list}: first");
        mount.stop();
        mount.start_with(list);
        let before = sh(&mount, "stat -c %x f");
        std::thread::sleep(Duration::from_millis(20));
        sh(&mount, "cat f >/dev/null");
        let changed = sh(&mount, "stat -c %x f") != before;
        assert_eq!(changed, again, "{list}: again");
        // Its content is in the page cache now, and the file is opened once more.
        let before = sh(&mount, "stat -c %x f");
        std::thread::sleep(Duration::from_millis(20));
        sh(&mount, "cat f >/dev/null");
        let changed = sh(&mount, "stat -c %x f") != before;
        assert_eq!(changed, again, "{list}: from memory");
        mount.stop();
    }
}

#[test]
fn flags_of_inodes_are_shown_changed_and_obeyed() {
    if !have(&["chattr", "lsattr"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    sh(&mount, "echo content >a; echo content >i; mkdir d; chattr +a a; chattr +i i; chattr +iA d");
    mount.stop();
    mount.start();
    let said = sh(
        &mount,
        "lsattr -d a i d; ! echo x >a; ! dd if=/dev/zero of=a bs=1 count=1 conv=notrunc; echo more >>a
        cat a; ! echo x >>i; ! rm a; ! rm i; ! mv i j; ! touch d/new; ! chattr +j a
        touch a; ! touch -d @0 a; ! touch i
        chattr -i i d; chattr -a a; rm a i; touch d/new; lsattr -d d",
    );
    assert!(said.starts_with("-----a--------e------- a\n----i---------e------- i"), "{said}");
    assert!(
        said.contains("----i--A------e------- d") && said.contains("content\nmore\n"),
        "{said}"
    );
    assert_eq!(said.matches("not permitted").count(), 9, "{said}");
    assert!(
        said.contains("not supported") && said.ends_with("-------A------e------- d\n"),
        "{said}"
    );
    mount.stop();
}

/// The kernel caches attributes, and only the server knows which ones these programs change.
#[test]
fn programs_see_the_number_of_the_root_and_times_of_changes() {
    if !have(&["chattr"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let said = sh(
        &mount,
        "stat -c %i . && ls -id . && echo x >a && c=$(stat -c %z a) && sleep 0.05 && chattr +A a
        d=$(stat -c %z a) && test \"$c\" != \"$d\" && sleep 0.05 && mv a b
        test \"$d\" != \"$(stat -c %z b)\" && echo changed",
    );
    assert_eq!(said, "2\n2 .\nchanged\n");
    mount.stop();
}

#[test]
fn handles_of_files_last_longer_than_the_memory_of_the_kernel() {
    if !have(&["python3"]) {
        return;
    }
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/programs/handles.py");
    let said = sh(&mount, &format!("python3 {script} ."));
    assert_eq!(said, "40 handles, 20 of them stale\n");
    mount.stop();
}

#[test]
fn content_goes_through_the_journal_if_asked() {
    let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
    mount.start_with("data=journal");
    sh(&mount, "head -c 12000000 /dev/urandom >a; cp a b; sync b; cmp a b; rm a; cp b c; cmp b c");
    mount.stop();
    mount.start();
    sh(&mount, "cmp b c");
    mount.stop();
}

#[test]
fn damage_is_marked_or_ends_changes() {
    for (list, changes) in [("errors=continue", true), ("errors=remount-ro", false)] {
        let Some(mut mount) = Mount::new(&["-b", "4096"]) else { return };
        mount.start();
        sh(&mount, "echo content >good; echo content >bad");
        mount.stop();
        // The block of the file lies beyond the end.
        let set = "set_inode_field bad block[5] 0xfffffff0";
        let done = Command::new("debugfs").args(["-w", "-R", set]).arg(mount.image()).output();
        assert!(done.unwrap().status.success());
        mount.start_with(list);
        let said = sh(&mount, "! cat bad; cat good");
        assert!(said.contains("needs cleaning") && said.ends_with("content\n"), "{said}");
        let new = fs::write(mount.root().join("new"), "x").map_err(|error| error.raw_os_error());
        assert_eq!(new, if changes { Ok(()) } else { Err(Some(30)) }, "{list}");
        assert_eq!(sh(&mount, "cat good"), "content\n");
        common::unmount(&mount.root());
        let served = mount.server.take().unwrap().join().unwrap();
        assert_eq!(served.is_ok(), changes, "{served:?}");
        check_refused(&mount, if changes { "errors were found" } else { "after an error" });
        let dumped = Command::new("dumpe2fs").arg("-h").arg(mount.image()).output().unwrap();
        let dumped = String::from_utf8_lossy(&dumped.stdout).into_owned();
        assert_eq!(dumped.contains("First error inode #:"), changes, "{list}: {dumped}");
        let checked = Command::new("e2fsck").arg("-fy").arg(mount.image()).output().unwrap();
        assert_eq!(checked.status.code(), Some(1), "{}", String::from_utf8_lossy(&checked.stdout));
        mount.start();
        assert_eq!(sh(&mount, "cat good"), "content\n");
        mount.stop();
    }
}

/// Checks that the image cannot be mounted before somebody has looked at it.
fn check_refused(mount: &Mount, why: &str) {
    let refused = serve(&mount.image(), &mount.root(), MountOptions::default(), || ());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains(why) && refused.contains("e2fsck -p"), "{refused}");
}
