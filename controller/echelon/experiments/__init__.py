"""Published experiments, repeated on fabrics of this project: sweeps of points, then tables, figures and a report."""
