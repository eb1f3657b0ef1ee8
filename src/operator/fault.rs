//! Errors as a Varlink client sees them: a name, a sentence and a remedy.

use serde_json::{Value, json};

/// An error reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// `org.varlink.service.InterfaceNotFound`: names the interface.
    InterfaceNotFound(String),
    /// `org.varlink.service.MethodNotFound`: names the method.
    MethodNotFound(String),
    /// `org.varlink.service.InvalidParameter`: names the parameter; `message` where the message as
    /// a whole is not a call.
    InvalidParameter(String),
    /// `org.varlink.service.ExpectedMore`: the method only streams.
    ExpectedMore,
    /// The caller may not speak here.
    PermissionDenied(String),
    /// There is no such session.
    UnknownSession(String),
    /// The host is occupied.
    Busy(String),
    /// The host understood, and will not.
    Refused(String),
    /// Something is over its limit.
    TooLarge(String),
    /// What was named is not there.
    NotFound(String),
    /// The configuration or the data cannot be used.
    Unusable(String),
    /// The host is on its way down.
    Stopping,
    /// The host failed.
    Internal(String),
}

impl Fault {
    /// The qualified name of the error.
    pub fn name(&self) -> &'static str {
        match self {
            Self::InterfaceNotFound(_) => "org.varlink.service.InterfaceNotFound",
            Self::MethodNotFound(_) => "org.varlink.service.MethodNotFound",
            Self::InvalidParameter(_) => "org.varlink.service.InvalidParameter",
            Self::ExpectedMore => "org.varlink.service.ExpectedMore",
            Self::PermissionDenied(_) => "org.klbr.Operator.PermissionDenied",
            Self::UnknownSession(_) => "org.klbr.Operator.UnknownSession",
            Self::Busy(_) => "org.klbr.Operator.Busy",
            Self::Refused(_) => "org.klbr.Operator.Refused",
            Self::TooLarge(_) => "org.klbr.Operator.TooLarge",
            Self::NotFound(_) => "org.klbr.Operator.NotFound",
            Self::Unusable(_) => "org.klbr.Operator.Unusable",
            Self::Stopping => "org.klbr.Operator.Stopping",
            Self::Internal(_) => "org.klbr.Operator.Internal",
        }
    }

    /// The parameters of the error: those of the interface that defines it.
    pub fn parameters(&self) -> Value {
        let ours = |message: &str, remedy: &str| json!({"message": message, "remedy": remedy});
        match self {
            Self::InterfaceNotFound(interface) => json!({"interface": interface}),
            Self::MethodNotFound(method) => json!({"method": method}),
            Self::InvalidParameter(parameter) => json!({"parameter": parameter}),
            Self::ExpectedMore => json!({}),
            Self::PermissionDenied(message) => {
                ours(message, "call as the user who owns the host, from outside its workers")
            }
            Self::UnknownSession(message) => ours(message, "`klbr status` lists the sessions"),
            Self::Busy(message) => ours(message, "try again when it is done, or `klbr interrupt` it"),
            Self::Refused(message) => ours(message, "change what was asked"),
            Self::TooLarge(message) => ours(message, "send less, or put it into a file of the workspace"),
            Self::NotFound(message) => ours(message, "`klbr held` lists the held texts"),
            Self::Unusable(message) => ours(message, "mend it, then ask again, or `klbr reload`"),
            Self::Stopping => ours("the host is stopping", "ask again once it is back"),
            Self::Internal(message) => ours(message, "the host's own log says more"),
        }
    }
}
