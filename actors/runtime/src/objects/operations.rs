//! Operations on shared objects, and their replies.

use fiber_core::Result;
use fiber_values::codec::EncodedValue;
use serde::de::DeserializeOwned;

use super::port_ref::{PortRef, Response};
use super::ticket::Ticket;
use crate::reply::Reply;

/// A handle of a shared object of one type, which sends operations to it.
///
/// The operations of one process on one object are carried out in the order in which they were
/// sent.
pub trait ObjectRef: Clone + Send + 'static {
    /// The operations of the object.
    type Operation: Send + 'static;

    /// Returns the object's port.
    fn port(&self) -> &PortRef;

    /// Returns the name of the object in errors.
    fn name(&self) -> &str {
        &self.port().name
    }

    /// Returns a number for a request that may be withdrawn or released later.
    fn ticket(&self) -> Ticket {
        self.port().ticket()
    }

    /// Sends an operation. The future is its encoded result.
    fn request(&self, operation: &Self::Operation) -> Response;

    /// Sends an operation that has no result.
    fn send(&self, operation: &Self::Operation);

    /// Sends an operation. Errors say that "`doing` *name*" did not happen in time.
    fn call<R>(&self, doing: &str, operation: &Self::Operation) -> Reply<R>
    where
        R: DeserializeOwned + Send + 'static,
    {
        let (object, response) = (self.clone(), self.request(operation));
        Reply::named(format!("{doing} {}", self.name()), async move {
            // The object lives until it has answered.
            let _object = object;
            EncodedValue::from(response.await?).decode()
        })
    }

    /// Sends an operation, unless it could not be encoded, and passes the result on to `then`.
    fn call_then<R, T>(
        &self,
        doing: &str,
        operation: Result<Self::Operation>,
        then: impl FnOnce(R) -> Result<T> + Send + 'static,
    ) -> Reply<T>
    where
        R: DeserializeOwned + Send + 'static,
        T: 'static,
    {
        let result = operation.map(|operation| self.call::<R>(doing, &operation));
        Reply::named(format!("{doing} {}", self.name()), async move { then(result?.await?) })
    }

    /// Sends an operation that may wait. Dropping the reply before the answer withdraws it. The
    /// functions make both operations of one ticket.
    fn call_withdrawable<R>(
        &self,
        what: String,
        begin: impl FnOnce(Ticket) -> Self::Operation,
        withdraw: impl FnOnce(Ticket) -> Self::Operation,
    ) -> Reply<R>
    where
        R: DeserializeOwned + Send + 'static,
    {
        let ticket = self.ticket();
        let response = self.request(&begin(ticket));
        let withdraw = self.send_on_drop(withdraw(ticket));
        Reply::named(what, async move {
            let answer = EncodedValue::from(response.await?).decode()?;
            withdraw.disarm();
            Ok(answer)
        })
    }

    /// Returns a value that sends `operation` when it is dropped, unless it is disarmed.
    fn send_on_drop(&self, operation: Self::Operation) -> SendOnDrop<Self> {
        SendOnDrop { object: self.clone(), operation: Some(operation) }
    }
}

/// Withdraws or releases what an operation asked for: sends another operation when it is dropped.
pub struct SendOnDrop<O: ObjectRef> {
    object: O,
    operation: Option<O::Operation>,
}

impl<O: ObjectRef> SendOnDrop<O> {
    /// Returns the handle of the object that gets the operation.
    pub fn object(&self) -> &O {
        &self.object
    }

    /// Keeps the operation from being sent.
    pub fn disarm(mut self) {
        self.operation = None;
    }
}

impl<O: ObjectRef> Drop for SendOnDrop<O> {
    fn drop(&mut self) {
        if let Some(operation) = self.operation.take() {
            self.object.send(&operation);
        }
    }
}
