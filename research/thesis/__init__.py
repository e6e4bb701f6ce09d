"""Chapter 3 of the thesis of J. Salamy.

Network Requirements for Distributed Machine Learning Training in the Cloud, MIT 2022.
"""
