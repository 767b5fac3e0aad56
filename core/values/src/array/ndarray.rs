//! Conversions from and to ndarray's arrays.

use ndarray::{ArrayBase, ArrayView, Data, Dimension, IxDyn};

use super::{Array, Element};

/// Copies the elements, in row-major order, and keeps the shape.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Array<T> {
    fn from(array: &ArrayBase<S, D>) -> Array<T> {
        let elements = match array.as_slice() {
            Some(elements) => Array::copy_of(elements),
            None => array.iter().copied().collect(),
        };
        elements.reshape(array.shape()).expect("the shape is of these elements")
    }
}

/// Takes the elements without a copy if they are in row-major order, and keeps the shape.
impl<T: Element, D: Dimension> From<ndarray::Array<T, D>> for Array<T> {
    fn from(array: ndarray::Array<T, D>) -> Array<T> {
        let shape = array.shape().to_vec();
        if !array.is_standard_layout() {
            return Array::from(&array);
        }
        let len = array.len();
        let (mut elements, start) = array.into_raw_vec_and_offset();
        elements.truncate(start.unwrap_or(0) + len);
        elements.drain(..start.unwrap_or(0));
        Array::from(elements).reshape(&shape).expect("the shape is of these elements")
    }
}

impl<T: Element> Array<T> {
    /// Returns a view with the array's shape. Copies nothing; `to_owned` of the view copies.
    ///
    /// # Examples
    /// ```
    /// # use fiber_values as fiber;
    /// use fiber::Array;
    ///
    /// let matrix = Array::from(ndarray::array![[1.0, 2.0], [3.0, 4.0]]);
    /// assert_eq!(matrix.view().sum(), 10.0);
    /// ```
    pub fn view(&self) -> ArrayView<'_, T, IxDyn> {
        ArrayView::from_shape(IxDyn(&self.shape()), self).expect("the shape is of these elements")
    }
}
