//! What a host says to a `klbr contain --accepted` that the system's manager started for it: what to
//! run, and which descriptors it has.
//!
//! One connection, three steps. The shim says one byte, with which the kernel names it. The host, sure of
//! the unit that it talks to, sends one line of JSON with descriptors. From then on the connection is the
//! lifeline: nothing more is sent, and its end is the end of all that the unit runs.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use super::Launch;

/// What the shim says first.
const HERE: &[u8] = b"!";
/// Longest line with an order.
const ORDER_BYTES_MAX: usize = 262_144;
/// Standard output, standard error and, where there is one, a control connection.
const DESCRIPTORS_MAX: usize = 3;
/// Who a worker is, is for its unit to say.
pub(super) const OF_THE_UNIT: &[&str] = &["HOME", "USER", "LOGNAME", "SHELL", "TMPDIR"];

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    cwd: String,
}

/// The order for a launch, as it is sent. `None` where a path or a variable is no UTF-8, or it is too long.
pub(super) fn order(launch: &Launch) -> Option<Vec<u8>> {
    let text = |value: &std::ffi::OsStr| value.to_str().map(str::to_owned);
    let of_the_host = |name: &str| !OF_THE_UNIT.contains(&name);
    let order = Order {
        argv: launch.argv.iter().map(|word| text(word)).collect::<Option<_>>()?,
        env: launch
            .env
            .iter()
            .filter(|(name, _)| name.to_str().is_none_or(of_the_host))
            .map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect::<Option<_>>()?,
        cwd: text(launch.cwd.as_os_str())?,
    };
    let mut line = serde_json::to_vec(&order).ok()?;
    line.push(b'\n');
    (line.len() <= ORDER_BYTES_MAX).then_some(line)
}

/// Sends an order with its descriptors.
pub(super) fn send(
    connection: impl AsFd,
    order: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(std::io::Error::other("too many descriptors"));
    }
    let mut rest = order;
    while !rest.is_empty() {
        match sendmsg(&connection, &[IoSlice::new(rest)], &mut control, SendFlags::NOSIGNAL) {
            Ok(count) => {
                rest = &rest[count..];
                control.clear();
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The number of the process that said that it is there, as the kernel tells it; `None` where it tells none.
pub(super) fn who_is_there(connection: impl AsFd) -> std::io::Result<Option<u32>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    let received = recvmsg(
        connection,
        &mut [IoSliceMut::new(&mut byte)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )?;
    if received.bytes != HERE.len() || byte != HERE {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmCredentials(peer) => u32::try_from(peer.pid.as_raw_nonzero().get()).ok(),
        _ => None,
    }))
}

/// The shim's side, over its standard input: the program to run, or what is wrong with the order.
pub(super) fn receive() -> Result<Command, String> {
    let connection = std::io::stdin();
    rustix::io::write(&connection, HERE)
        .map_err(|error| format!("standard input is no connection: {error}"))?;
    let (line, descriptors) = receive_line(connection.as_fd())?;
    let order: Order = serde_json::from_slice(&line).map_err(|error| format!("no order: {error}"))?;
    let Some((program, arguments)) = order.argv.split_first() else {
        return Err("no order: argv is empty".to_owned());
    };
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(order.env).current_dir(order.cwd);
    let own = OF_THE_UNIT.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value)));
    command.envs(own);
    let mut descriptors = descriptors.into_iter();
    let (Some(stdout), Some(stderr)) = (descriptors.next(), descriptors.next()) else {
        return Err("no order: descriptors are missing".to_owned());
    };
    command.stdin(descriptors.next().map_or_else(Stdio::null, Stdio::from)).stdout(stdout).stderr(stderr);
    Ok(command)
}

fn receive_line(connection: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), String> {
    let (mut line, mut descriptors) = (Vec::new(), Vec::new());
    while line.last() != Some(&b'\n') {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut piece = [0_u8; 4096];
        let received =
            recvmsg(connection, &mut [IoSliceMut::new(&mut piece)], &mut control, RecvFlags::CMSG_CLOEXEC);
        let count = match received {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(format!("no order: {error}")),
        };
        if count == 0 || line.len() + count > ORDER_BYTES_MAX {
            return Err(format!("no order of at most {ORDER_BYTES_MAX} bytes"));
        }
        line.extend_from_slice(&piece[..count]);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(handed) = message {
                descriptors.extend(handed);
            }
        }
    }
    Ok((line, descriptors))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn launch(argument: OsString) -> Launch {
        Launch {
            unit: "klbr-gen-1-00000000".to_owned(),
            argv: vec!["program".into(), argument],
            env: vec![("HOME".into(), "/host".into()), ("LANG".into(), "C".into())],
            cwd: "/somewhere".into(),
            read_only: vec![],
            read_write: vec![],
            control: None,
        }
    }

    #[test]
    fn an_order_arrives_with_its_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let long = "é".repeat(10_000);
        let line = order(&launch(long.clone().into())).unwrap();
        send(&ours, &line, &[ours.as_fd(), theirs.as_fd()]).unwrap();
        let (received, descriptors) = receive_line(theirs.as_fd()).unwrap();
        let order: Order = serde_json::from_slice(&received).unwrap();
        assert_eq!(order.argv, ["program".to_owned(), long]);
        // Its home is not the host's.
        assert_eq!(order.env, [("LANG".to_owned(), "C".to_owned())]);
        assert_eq!(descriptors.len(), 2);
    }

    #[test]
    fn what_cannot_be_said_is_not_sent() {
        assert!(order(&launch(OsString::from_vec(vec![0xff]))).is_none());
        let fixed = order(&launch("".into())).unwrap().len();
        assert!(order(&launch("x".repeat(ORDER_BYTES_MAX - fixed).into())).is_some());
        assert!(order(&launch("x".repeat(ORDER_BYTES_MAX - fixed + 1).into())).is_none());
    }

    #[test]
    fn the_kernel_says_who_is_there() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        rustix::net::sockopt::set_socket_passcred(&ours, true).unwrap();
        rustix::io::write(&theirs, HERE).unwrap();
        assert_eq!(who_is_there(&ours).unwrap(), Some(std::process::id()));
        drop(theirs);
        assert!(who_is_there(&ours).is_err());
    }

    #[test]
    fn an_end_is_no_order() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        rustix::io::write(&ours, b"{}").unwrap();
        drop(ours);
        assert!(receive_line(theirs.as_fd()).is_err());
    }
}
