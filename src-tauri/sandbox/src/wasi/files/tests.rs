//! The tree, its bounds and its counts, whatever is called.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use super::*;

const WRITE: Open = Open {
    follow: true,
    create: true,
    exclusive: false,
    truncate: false,
    folder: false,
    read: true,
    write: true,
    append: false,
};

fn files() -> Files {
    Files::new(FilesLimits {
        tmp_bytes_max: 1 << 20,
        workspace_bytes_max: 2 << 20,
        descriptors_max: 16,
        memory_bytes_max: 8 << 20,
    })
}

fn put(files: &mut Files, path: &str, bytes: &[u8]) -> Answer<usize> {
    let fd = files.open(ROOT_DESCRIPTOR, path, WRITE)?;
    let written = files.write(fd, bytes);
    files.close(fd)?;
    written
}

fn get(files: &mut Files, path: &str) -> Answer<Vec<u8>> {
    let how = Open {
        create: false,
        write: false,
        ..WRITE
    };
    let fd = files.open(ROOT_DESCRIPTOR, path, how)?;
    let mut bytes = vec![0; 1 << 20];
    let count = files.read(fd, &mut bytes);
    files.close(fd)?;
    bytes.truncate(count?);
    Ok(bytes)
}

#[test]
fn bytes_that_go_are_free_again() {
    let mut files = files();
    let most = vec![7; 1 << 20];
    for _ in 0..5 {
        assert_eq!(put(&mut files, "tmp/a", &most), Ok(1 << 20));
        assert_eq!(put(&mut files, "tmp/b", b"x"), Err(Refusal::NoSpace));
        files.remove_file(ROOT_DESCRIPTOR, "tmp/a").unwrap();
        files.remove_file(ROOT_DESCRIPTOR, "tmp/b").unwrap();
        assert_eq!(files.memory_bytes(), 0);
    }
}

#[test]
fn a_removed_file_lives_until_it_is_closed() {
    let mut files = files();
    let fd = files.open(ROOT_DESCRIPTOR, "tmp/a", WRITE).unwrap();
    files.remove_file(ROOT_DESCRIPTOR, "tmp/a").unwrap();
    files.write(fd, b"still").unwrap();
    files.seek(fd, 0, Whence::Start).unwrap();
    let mut bytes = [0; 5];
    assert_eq!((files.read(fd, &mut bytes), &bytes), (Ok(5), b"still"));
    files.close(fd).unwrap();
    assert_eq!(files.memory_bytes(), 0);
}

#[test]
fn a_file_past_a_hole_reads_as_zeros_and_costs_what_was_written() {
    let mut files = files();
    let fd = files.open(ROOT_DESCRIPTOR, "tmp/a", WRITE).unwrap();
    files.write_at(fd, b"end", 900_000).unwrap();
    assert!(files.memory_bytes() < 64 << 10);
    let mut bytes = [1; 8];
    assert_eq!(files.read_at(fd, &mut bytes, 899_998), Ok(5));
    assert_eq!(&bytes[..5], b"\0\0end");
    files.set_size(fd, 10).unwrap();
    assert_eq!(files.memory_bytes(), 0);
    files.set_size(fd, 20).unwrap();
    assert_eq!(files.read_at(fd, &mut bytes, 12), Ok(8));
    assert_eq!(bytes, [0; 8]);
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut files = files();
    let fd = files.open(ROOT_DESCRIPTOR, "tmp/a", WRITE).unwrap();
    files.write(fd, b"secret").unwrap();
    files.set_size(fd, 2).unwrap();
    files.set_size(fd, 6).unwrap();
    assert_eq!(get(&mut files, "tmp/a"), Ok(b"se\0\0\0\0".to_vec()));
}

#[test]
fn the_memory_limit_is_shared_with_the_guest() {
    let mut files = files();
    files.set_memory_bytes_elsewhere((8 << 20) - 10);
    assert_eq!(put(&mut files, "tmp/a", b"0123456789"), Ok(10));
    assert_eq!(put(&mut files, "tmp/b", b"0"), Err(Refusal::NoSpace));
}

#[test]
fn a_clone_does_not_see_what_is_written_later() {
    let mut files = files();
    put(&mut files, "workspace/a", b"before").unwrap();
    let mut kept = files.clone();
    put(&mut files, "workspace/a", b"after!").unwrap();
    files.make_folder(ROOT_DESCRIPTOR, "workspace/new").unwrap();
    assert_eq!(get(&mut kept, "workspace/a"), Ok(b"before".to_vec()));
    assert_eq!(get(&mut kept, "workspace/new"), Err(Refusal::NoEntry));
}

#[test]
fn links_lead_within_the_tree_and_not_in_circles() {
    let mut files = files();
    files
        .make_link("../../../etc", ROOT_DESCRIPTOR, "tmp/up")
        .unwrap();
    assert_eq!(get(&mut files, "tmp/up/passwd"), Err(Refusal::NoEntry));
    files.make_link("b", ROOT_DESCRIPTOR, "tmp/a").unwrap();
    files.make_link("a", ROOT_DESCRIPTOR, "tmp/b").unwrap();
    assert_eq!(get(&mut files, "tmp/a"), Err(Refusal::Loop));
    files
        .make_link("/workspace/made", ROOT_DESCRIPTOR, "tmp/c")
        .unwrap();
    put(&mut files, "tmp/c", b"through").unwrap();
    assert_eq!(get(&mut files, "workspace/made"), Ok(b"through".to_vec()));
}

#[test]
fn a_folder_is_not_moved_into_itself() {
    let mut files = files();
    files.make_folder(ROOT_DESCRIPTOR, "tmp/a").unwrap();
    files.make_folder(ROOT_DESCRIPTOR, "tmp/a/b").unwrap();
    let moved = files.rename(ROOT_DESCRIPTOR, "tmp/a", ROOT_DESCRIPTOR, "tmp/a/b/c");
    assert_eq!(moved, Err(Refusal::Invalid));
    files
        .rename(ROOT_DESCRIPTOR, "tmp/a/b", ROOT_DESCRIPTOR, "tmp/b")
        .unwrap();
    let up = files.stat_path(ROOT_DESCRIPTOR, "tmp/b/..", true).unwrap();
    assert_eq!(up, files.stat_path(ROOT_DESCRIPTOR, "tmp", true).unwrap());
}

#[test]
fn a_listing_goes_on_while_its_entries_are_removed() {
    let mut files = files();
    for number in 0..100 {
        put(&mut files, &format!("tmp/{number}"), b"").unwrap();
    }
    let folder = Open {
        create: false,
        write: false,
        folder: true,
        ..WRITE
    };
    let fd = files.open(ROOT_DESCRIPTOR, "tmp", folder).unwrap();
    let (mut cookie, mut seen) = (2, 0);
    loop {
        let mut found = Vec::new();
        files
            .list(fd, cookie, |entry| {
                found.push(entry);
                found.len() < 7
            })
            .unwrap();
        let Some(last) = found.last() else { break };
        cookie = last.cookie;
        for entry in &found {
            let path = format!("tmp/{}", entry.name);
            files.remove_file(ROOT_DESCRIPTOR, &path).unwrap();
        }
        seen += found.len();
    }
    assert_eq!(seen, 100);
}

#[test]
fn descriptors_and_nodes_are_bounded() {
    let mut files = files();
    let opened = (0..100)
        .map_while(|_| files.open(ROOT_DESCRIPTOR, "dev/null", WRITE).ok())
        .count();
    assert_eq!(opened, 12);
    files.close(5).unwrap();
    let made = (0..NODES_MAX)
        .take_while(|number| put(&mut files, &format!("tmp/{number}"), b"").is_ok())
        .count();
    assert!(made < NODES_MAX && made > NODES_MAX - 20, "{made}");
}

/// Counts agree with what is there: bytes by area, names and descriptors by node.
fn check(files: &Files) {
    let (mut tmp, mut workspace) = (0, 0);
    let mut links = vec![0; files.nodes.len()];
    links[ROOT] = 1;
    let mut opened = vec![0; files.nodes.len()];
    for descriptor in files.descriptors.iter().flatten() {
        if descriptor.target == Target::Node {
            opened[descriptor.node] += 1;
        }
    }
    for node in files.nodes.iter().flatten() {
        let bytes = match &node.body {
            Body::File { size, pieces } => {
                assert!(pieces.len() <= (*size as usize).div_ceil(PIECE_BYTES));
                pieces
                    .iter()
                    .flatten()
                    .map(|piece| piece.len() as u64)
                    .sum()
            }
            Body::Link(target) => target.len() as u64,
            Body::Folder(folder) => {
                assert_eq!(folder.by_name.len(), folder.by_cookie.len());
                for (_, node) in folder.by_cookie.values() {
                    links[*node] += 1;
                }
                0
            }
            _ => 0,
        };
        match node.area {
            Area::System => {}
            Area::Tmp => tmp += bytes,
            Area::Workspace => workspace += bytes,
        }
    }
    assert_eq!((files.tmp_bytes, files.workspace_bytes), (tmp, workspace));
    assert!(tmp <= files.limits.tmp_bytes_max);
    assert!(workspace <= files.limits.workspace_bytes_max);
    for (number, node) in files.nodes.iter().enumerate() {
        let Some(node) = node else {
            assert_eq!(
                (links[number], opened[number]),
                (0, 0),
                "node {number} is gone"
            );
            continue;
        };
        assert_eq!(
            (node.links, node.opened),
            (links[number], opened[number]),
            "node {number}"
        );
        assert!(node.links > 0 || node.opened > 0, "node {number} is lost");
    }
}

/// What a hostile guest may do, in any order and with any numbers.
#[test]
fn no_sequence_of_calls_breaks_the_counts() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut files = files();
    let mut buffer = vec![0; 200_000];
    for step in 0..60_000 {
        let parts = [
            "tmp",
            "workspace",
            "a",
            "b",
            "c",
            "..",
            ".",
            "lib",
            "",
            "dev/null",
        ];
        let mut path = || {
            let count = 1 + next(4);
            let mut path = String::new();
            for _ in 0..count {
                path += parts[next(parts.len() as u64) as usize];
                path.push('/');
            }
            if next(8) > 0 {
                path.pop();
            }
            path
        };
        let (one, two) = (path(), path());
        let fd = next(18) as u32;
        let base = if next(3) == 0 { fd } else { ROOT_DESCRIPTOR };
        let numbers = [0, 1, 70_000, 1 << 20, 1 << 40, u64::MAX];
        let number = numbers[next(numbers.len() as u64) as usize];
        let length = next(200_000) as usize;
        let bit = |bits: u64, at: u32| bits >> at & 1 == 1;
        let bits = next(256);
        let _ = match next(16) {
            0 | 1 => files
                .open(
                    base,
                    &one,
                    Open {
                        follow: bit(bits, 0),
                        create: bit(bits, 1),
                        exclusive: bit(bits, 2) && bit(bits, 3),
                        truncate: bit(bits, 4) && bit(bits, 5),
                        folder: bit(bits, 6) && bit(bits, 7),
                        read: true,
                        write: bit(bits, 3),
                        append: bit(bits, 5),
                    },
                )
                .map(|_| ()),
            2 => files.close(fd),
            3 => files.renumber(fd, next(18) as u32),
            4 => files.write(fd, &buffer[..length]).map(|_| ()),
            5 => files.write_at(fd, &buffer[..length], number).map(|_| ()),
            6 => files.read(fd, &mut buffer[..length]).map(|_| ()),
            7 => files.read_at(fd, &mut buffer[..length], number).map(|_| ()),
            8 => {
                let whence = [Whence::Start, Whence::Here, Whence::End];
                files
                    .seek(fd, number as i64, whence[next(3) as usize])
                    .map(|_| ())
            }
            9 => files.set_size(fd, number),
            10 => files.make_folder(base, &one),
            11 => files.remove_folder(base, &one),
            12 => files.remove_file(base, &one),
            13 => files.make_link(&one, base, &two),
            14 => files.link(base, &one, bit(bits, 0), ROOT_DESCRIPTOR, &two),
            _ => files.rename(base, &one, ROOT_DESCRIPTOR, &two),
        };
        if step % 50 == 0 {
            check(&files);
        }
    }
}

#[test]
fn a_folder_named_by_dots_exists_or_does_not() {
    let mut files = files();
    for path in ["tmp/.", "tmp/..", "workspace/./."] {
        let made = files.make_folder(ROOT_DESCRIPTOR, path);
        assert_eq!(made, Err(Refusal::Exists), "{path}");
    }
    let made = put(&mut files, "tmp/none/", b"x");
    assert_eq!(made, Err(Refusal::IsFolder));
    let made = files.make_folder(ROOT_DESCRIPTOR, "tmp/none/.");
    assert_eq!(made, Err(Refusal::Invalid));
}
