//! Arrays of plain numbers, which travel as bytes.

mod element;
#[cfg(feature = "ndarray")]
mod ndarray;
mod wire;

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

use crate::blob::{self, Blob, Unfinished};
use fiber_core::{Error, Result};

pub use self::element::Element;

/// An array of numbers that travels between processes as bytes, and within one host without a copy.
///
/// Elements are integers, floats and `bool`. An array is a value like any other: an argument, a
/// result, a field of a struct, an element of a queue. It derefs to `&[T]`, can't be changed, and
/// its clones share the elements. An array of several dimensions has a
/// [`shape`](Array::shape); others have one dimension.
///
/// **Cost.** A `Vec<f64>` is copied into a message and out of it. An array from 32 KiB on is not: a
/// worker of the same host reads it in shared memory. The process that makes it writes it there
/// once, and passing it on (as the argument of another task, for instance) copies nothing.
/// [`Array::build`] writes the elements there in the first place. To other hosts, and when shared
/// memory is short, the bytes themselves are sent; programs see no difference.
///
/// # Examples
/// ```
/// # use fiber_values as fiber;
/// use fiber::Array;
///
/// let array = Array::from(vec![1.0, 2.0, 4.0]);
/// assert_eq!(array.iter().sum::<f64>(), 7.0);
/// assert_eq!(array[1..], [2.0, 4.0]);
/// ```
pub struct Array<T> {
    blob: Blob,
    /// The length of each dimension; `None` for one dimension.
    shape: Option<Arc<[usize]>>,
    elements: PhantomData<T>,
}

impl<T: Element> Array<T> {
    /// Returns an array of `len` elements that `fill` writes. They are 0 before.
    ///
    /// A large array is written to the memory from which other processes of the host read it, so
    /// sending it copies nothing.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// use fiber::Array;
    ///
    /// let squares = Array::build(4, |squares: &mut [u32]| {
    ///     squares.iter_mut().zip(0..).for_each(|(square, x)| *square = x * x);
    /// });
    /// assert_eq!(*squares, [0, 1, 4, 9]);
    /// ```
    pub fn build(len: usize, fill: impl FnOnce(&mut [T])) -> Array<T> {
        let bytes = len * size_of::<T>();
        if bytes >= blob::MIN_LEN
            && let Some(mut unfinished) = Unfinished::new(bytes)
        {
            let memory = unfinished.bytes();
            memory.fill(0);
            fill(T::from_zeroes(memory));
            return Array::new(unfinished.finish());
        }
        let mut elements = vec![T::ZERO; len];
        fill(&mut elements);
        Array::from(elements)
    }

    /// Returns an array with a copy of these elements.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// assert_eq!(fiber::Array::copy_of(&[1, 2, 3]).len(), 3);
    /// ```
    pub fn copy_of(elements: &[T]) -> Array<T> {
        let bytes = T::as_bytes(elements);
        let shared = (bytes.len() >= blob::MIN_LEN).then(|| blob::arena::copy_of(bytes)).flatten();
        shared.map_or_else(|| Array::from(elements.to_vec()), Array::new)
    }

    /// Returns the bytes as an array, without a copy if they are aligned for its elements.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the bytes are no whole number of elements, or a `bool` is neither 0
    /// nor 1.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// # use bytes::Bytes;
    /// let array = fiber::Array::<u16>::from_bytes(Bytes::from_static(&[1, 0, 2, 0]))?;
    /// assert_eq!(*array, [1, 2].map(u16::from_le));
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    pub fn from_bytes(bytes: Bytes) -> Result<Array<T>> {
        Array::from_blob(Blob::private(bytes))
            .map_err(|problem| Error::invalid("Array::from_bytes", problem))
    }

    /// Copies the elements to a vector.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// let mut vector = fiber::Array::from(vec![1, 2, 3]).into_vec();
    /// vector.push(4);
    /// ```
    pub fn into_vec(self) -> Vec<T> {
        self.to_vec()
    }

    /// Returns the length of each dimension.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// assert_eq!(fiber::Array::from(vec![1, 2, 3]).shape(), [3]);
    /// ```
    pub fn shape(&self) -> Vec<usize> {
        self.shape.as_ref().map_or_else(|| vec![self.len()], |shape| shape.to_vec())
    }

    /// Returns the same elements with other dimensions, in row-major order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the dimensions have another number of elements.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// let matrix = fiber::Array::from(vec![1, 2, 3, 4, 5, 6]).reshape(&[2, 3])?;
    /// assert_eq!(matrix.shape(), [2, 3]);
    /// # Ok::<(), fiber_core::Error>(())
    /// ```
    pub fn reshape(mut self, shape: &[usize]) -> Result<Array<T>> {
        let len = shape.iter().try_fold(1usize, |len, dimension| len.checked_mul(*dimension));
        if len != Some(self.len()) {
            let problem = format!("{shape:?} does not have the array's {} elements", self.len());
            return Err(Error::invalid("Array::reshape", problem));
        }
        self.shape = (shape != [self.len()]).then(|| shape.into());
        Ok(self)
    }

    /// Returns whether other processes of this host can read the elements without a copy.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// assert!(!fiber::Array::from(vec![1, 2, 3]).is_shared(), "it is small");
    /// ```
    pub fn is_shared(&self) -> bool {
        self.blob.as_shared().is_some()
    }

    /// The blob's bytes are aligned and valid for the elements.
    pub(crate) fn new(blob: Blob) -> Array<T> {
        Array { blob, shape: None, elements: PhantomData }
    }

    pub(crate) fn into_blob(self) -> Blob {
        self.blob
    }

    /// Returns an array of the blob's bytes. Copies them if they are not aligned.
    ///
    /// It has no copies on other machines: a program may keep it for long.
    fn from_blob(blob: Blob) -> std::result::Result<Array<T>, String> {
        let blob = blob.without_copies();
        let name = std::any::type_name::<T>();
        if !blob.len().is_multiple_of(size_of::<T>()) {
            return Err(format!("{} bytes are no whole number of `{name}`", blob.len()));
        }
        if !T::are_valid(&blob) {
            return Err(format!("the bytes have a value that `{name}` does not have"));
        }
        if blob.as_ptr().align_offset(align_of::<T>()) == 0 {
            return Ok(Array::new(blob));
        }
        let mut elements = vec![T::ZERO; blob.len() / size_of::<T>()];
        T::as_bytes_mut(&mut elements).copy_from_slice(&blob);
        Ok(Array::from(elements))
    }
}

impl<T: Element> Deref for Array<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        T::from_valid(&self.blob)
    }
}

impl<T: Element> AsRef<[T]> for Array<T> {
    fn as_ref(&self) -> &[T] {
        self
    }
}

/// The elements of a vector, as the memory of a blob.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        T::as_bytes(&self.0)
    }
}

/// Takes the vector without a copy. The copy to shared memory is made when the array is sent.
impl<T: Element> From<Vec<T>> for Array<T> {
    fn from(elements: Vec<T>) -> Array<T> {
        Array::new(Blob::private(Bytes::from_owner(Elements(elements))))
    }
}

impl<T: Element> From<&[T]> for Array<T> {
    fn from(elements: &[T]) -> Array<T> {
        Array::copy_of(elements)
    }
}

impl<T: Element, const N: usize> From<[T; N]> for Array<T> {
    fn from(elements: [T; N]) -> Array<T> {
        Array::copy_of(&elements)
    }
}

impl<T: Element> FromIterator<T> for Array<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Array<T> {
        Array::from(Vec::from_iter(elements))
    }
}

impl<T: Element> From<Array<T>> for Vec<T> {
    fn from(array: Array<T>) -> Vec<T> {
        array.into_vec()
    }
}

impl<'a, T: Element> IntoIterator for &'a Array<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Element> Default for Array<T> {
    fn default() -> Array<T> {
        Array::from(Vec::new())
    }
}

impl<T> Clone for Array<T> {
    fn clone(&self) -> Array<T> {
        Array { blob: self.blob.clone(), shape: self.shape.clone(), elements: PhantomData }
    }
}

/// Two arrays are equal if they have the same shape and the same elements.
impl<T: Element + PartialEq> PartialEq for Array<T> {
    fn eq(&self, other: &Array<T>) -> bool {
        self.shape == other.shape && **self == **other
    }
}

impl<T: Element + Eq> Eq for Array<T> {}

impl<T: Element + fmt::Debug> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        if self.len() <= SHOWN && self.shape.is_none() {
            return fmt::Debug::fmt(&**self, f);
        }
        write!(f, "Array({:?} of {}, ", self.shape(), std::any::type_name::<T>())?;
        f.debug_list().entries(&self[..SHOWN.min(self.len())]).finish()?;
        f.write_str(if self.len() > SHOWN { " …)" } else { ")" })
    }
}

#[cfg(test)]
mod tests;
