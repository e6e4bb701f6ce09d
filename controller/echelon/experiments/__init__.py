"""Published experiments, run again on fabrics of this project: sweeps of points, then tables, figures and a report."""
