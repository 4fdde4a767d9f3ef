//! The same operations on this service and on the host's own file service have the same results,
//! except where this one is meant to differ.

use opendal_core::{ErrorKind, Operator};
use opendal_service_fs::Fs;
use ringway_opendal::RingwayFs;

/// What a program sees of a result.
async fn run(op: &Operator, line: &str) -> String {
    let words: Vec<_> = line.split(' ').collect();
    let shown = match words[..] {
        ["write", key, content] => op.write(key, content.to_owned()).await.map(|_| String::new()),
        ["create", key, content] => {
            op.write_with(key, content.to_owned()).if_not_exists(true).await.map(|_| String::new())
        }
        ["append", key, content] => {
            op.write_with(key, content.to_owned()).append(true).await.map(|_| String::new())
        }
        ["read", key] => op.read(key).await.map(|content| format!("{:?}", content.to_vec())),
        ["range", key, from, to] => {
            let range = from.parse::<u64>().unwrap()..to.parse().unwrap();
            let read = op.read_with(key).range(range).await;
            read.map(|content| format!("{:?}", content.to_vec()))
        }
        ["stat", key] => op.stat(key).await.map(|found| {
            format!("{:?} {:?}", found.mode(), found.is_file().then(|| found.content_length()))
        }),
        ["exists", key] => op.exists(key).await.map(|found| found.to_string()),
        ["list", key, recursive] => {
            let list = op.list_with(key).recursive(recursive == "recursive").await;
            list.map(|entries| {
                let mut keys: Vec<_> = entries
                    .iter()
                    .map(|entry| format!("{} {:?}", entry.path(), entry.metadata().mode()))
                    .collect();
                keys.sort();
                format!("{keys:?}")
            })
        }
        ["mkdir", key] => op.create_dir(key).await.map(|()| String::new()),
        ["delete", key] => op.delete(key).await.map(|()| String::new()),
        ["remove", key] => op.delete_with(key).recursive(true).await.map(|()| String::new()),
        ["copy", from, to] => op.copy(from, to).await.map(|_| String::new()),
        ["rename", from, to] => op.rename(from, to).await.map(|()| String::new()),
        _ => panic!("{line}"),
    };
    shown.unwrap_or_else(|error| format!("error {}", ErrorKind::into_static(error.kind())))
}

/// Lines with `!` differ on purpose: see the crate's documentation.
const LINES: &str = "\
list / flat
list missing/ recursive
write a/b/object content
write a/b/other x
write top yy
write top zzz
read top
read a/b/object
range a/b/object 2 5
range a/b/object 2 2
range a/b/object 2 9
range a/b/object 20 30
create a/b/object again
create a/b/new again
append a/log one
append a/log two
read a/log
stat a/b/object
stat a/b/
stat a/b
stat a/b/object/
stat /
stat missing
exists missing
exists a/
list / flat
list / recursive
list a/ flat
list a/b flat
list a/b recursive
list a/b/o flat
list a/b/object flat
list top/ flat
mkdir d/e/f/
mkdir d/e/f/
list d/ recursive
copy a/b/object copied/to/here
read copied/to/here
copy top copied/to/here
read copied/to/here
copy missing to
copy top top
rename top moved/top
stat top
read moved/top
rename missing to
rename moved/top a/b/other
read a/b/other
rename d/ to
read a/b/
write a/b/ content
write ../out content
read ../out
delete ../out
delete missing
delete a/b/new
delete a/b/new
delete d/e/f/
list d/ recursive
remove d/
remove missing/
list / recursive
! write a/b/object/below content
! exists a/b/object/below
! read a/b
! delete a/b/
! write a/b content
";

#[tokio::test]
async fn results_are_those_of_the_hosts_service() {
    let roots = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [ours, theirs] = [&roots[0], &roots[1]].map(|root| root.path().to_str().unwrap());
    let ours = Operator::new(RingwayFs::default().root(ours)).unwrap();
    let theirs = Operator::new(Fs::default().root(theirs)).unwrap();
    let mut differ = Vec::new();
    for line in LINES.lines() {
        let (expected, operation) = match line.strip_prefix("! ") {
            Some(operation) => (true, operation),
            None => (false, line),
        };
        let results = (run(&ours, operation).await, run(&theirs, operation).await);
        if (results.0 != results.1) != expected {
            differ.push((line, results));
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
    let (ours, theirs) = (ours.info().capability(), theirs.info().capability());
    for (name, ours, theirs) in [
        ("stat", ours.stat, theirs.stat),
        ("write_can_empty", ours.write_can_empty, theirs.write_can_empty),
        ("write_can_append", ours.write_can_append, theirs.write_can_append),
        ("write_can_multi", ours.write_can_multi, theirs.write_can_multi),
        ("if_not_exists", ours.write_with_if_not_exists, theirs.write_with_if_not_exists),
        ("user_metadata", ours.write_with_user_metadata, theirs.write_with_user_metadata),
        ("create_dir", ours.create_dir, theirs.create_dir),
        ("recursive deletion", ours.delete_with_recursive, theirs.delete_with_recursive),
        ("list", ours.list, theirs.list),
        ("copy", ours.copy, theirs.copy),
        ("rename", ours.rename, theirs.rename),
        ("shared", ours.shared, theirs.shared),
    ] {
        assert!(ours && theirs, "{name}");
    }
}
