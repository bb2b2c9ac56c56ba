"""Pages of a list of URLs, fetched politely into WARC files: the stage `crawl`.

robots     what a site asks of crawlers
visits one page: redirects, limits, addresses that must not be visited
links      where pages lead
stage      all of it
"""

from marin_rules.pipeline.crawl.links import LinkRules
from marin_rules.pipeline.crawl.stage import CrawlConfig, crawl
from marin_rules.pipeline.crawl.visits import VisitSettings

__all__ = ["CrawlConfig", "LinkRules", "VisitSettings", "crawl"]
