"""A fit as one HTML page that needs nothing else: text, tables, pictures and what draws them."""

from avem.fits.report.page import report_html, write_report

__all__ = ["report_html", "write_report"]
